// Command mutate proves the MUSTs of the AI contract and the families of the zone contract. A proof is a
// test plus a change of the code that turns it red. The changes are listed in test/mutations.md and its
// neighbours; the command makes each of them in a copy that only the compiler sees, runs the test that must
// notice, and fails if one does not.
//
// It refuses to guess: a change whose old text does not stand exactly once in its file, a test that is
// red or absent without the change, and a change that does not compile prove nothing and are named.
// The working tree is never touched.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/allodhq/allod/wire/ai/must"
)

// listFile is where the changes are listed.
const listFile = "test/mutations.md"

// lists are all lists. The others have the same form and may be absent; where two name a duty, the first
// says whether it is proved in part.
var lists = []string{listFile, "test/mutations-certify.md", "test/mutations-zone.md"}

func main() {
	only := flag.String("must", "", "only the mutations of this MUST, family or part")
	list := flag.Bool("list", false, "run nothing; print the MUSTs that are not proved yet")
	verbose := flag.Bool("v", false, "print what each test said, so that one sees whether it is red for the right reason")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, ".", options{only: *only, list: *list, verbose: *verbose}); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	only    string // a MUST, a family or a part; empty for all
	list    bool
	verbose bool
}

// run does what the flags say for the module in a folder.
func run(ctx context.Context, out io.Writer, dir string, o options) error {
	root, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	// The compiler knows files by the folder's real name.
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return err
	}
	proofs, err := load(root, o.only)
	if err != nil {
		return err
	}
	if o.list {
		return printMissing(out, proofs)
	}
	if len(proofs) == 0 {
		return errors.New("no list has a mutation of that")
	}
	return prove(ctx, out, root, proofs, o.verbose)
}

// load reads the lists of a module, all of them or what belongs to one duty, and checks that against the
// module's files.
func load(root, only string) (proofs []proof, err error) {
	var problems []error
	for _, file := range lists {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if errors.Is(err, fs.ErrNotExist) && file != listFile {
			continue
		}
		if err != nil {
			return nil, err
		}
		more, wrong := parse(file, string(text))
		proofs, problems = append(proofs, more...), append(problems, wrong...)
	}
	if only != "" {
		proofs = slices.DeleteFunc(proofs, func(p proof) bool { return p.id != only })
	}
	if len(problems) == 0 {
		problems = check(root, proofs)
	}
	return proofs, errors.Join(problems...)
}

// A duty is a MUST and one of those who have to keep it.
type duty struct {
	must must.Must
	by   must.Enforcer
}

// duties are all duties, in the contract's order.
func duties() (all []duty) {
	for _, m := range must.All() {
		if m.EnforcedBy == must.Both {
			all = append(all, duty{m, must.Server}, duty{m, must.Daemon})
		} else {
			all = append(all, duty{m, m.EnforcedBy})
		}
	}
	return all
}

// printMissing prints the duties that have no mutation, or mutations of a part only. Those that only an
// operator can answer for have none by their nature and are printed apart.
func printMissing(out io.Writer, proofs []proof) error {
	var part, missing, operator []duty
	all := duties()
	for _, d := range all {
		i := slices.IndexFunc(proofs, func(p proof) bool { return p.id == d.must.ID && p.by == d.by })
		switch {
		case i >= 0 && proofs[i].part:
			part = append(part, d)
		case i >= 0:
		case !slices.ContainsFunc(d.must.ProvedBy, func(p must.Proof) bool { return p != must.Operator }):
			operator = append(operator, d)
		default:
			missing = append(missing, d)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	print := func(title string, list []duty) {
		if len(list) > 0 {
			fmt.Fprintln(w, title)
		}
		for _, d := range list {
			fmt.Fprintf(w, "  %s\tby the %s\n", d.must.ID, d.by)
		}
	}
	fmt.Fprintf(w, "%d duties of the AI contract's %d MUSTs, %d proved in %s.\n",
		len(all), len(must.All()), len(all)-len(part)-len(missing)-len(operator), listFile)
	print("Proved in part:", part)
	print("Not proved yet:", missing)
	print("For the operator to answer, and not for a test:", operator)
	if zone := slices.DeleteFunc(slices.Clone(proofs), func(p proof) bool { return p.by != "" }); len(zone) > 0 {
		fmt.Fprintf(w, "Of the zone, %d families and parts have changes:", len(zone))
		for _, p := range zone {
			fmt.Fprint(w, " "+p.id)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// name is how a mutation is called in tables and problems.
func (m mutation) name() string { return m.id + ": " + m.title }

// where says where in its list a mutation stands.
func (m mutation) where() string { return at(m.list, m.line) }

func at(file string, line int) string { return fmt.Sprintf("%s:%d", file, line) }

// indent puts a text under a line of a report.
func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}
