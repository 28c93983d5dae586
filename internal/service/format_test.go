package service

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files")

// says is a system whose programs say what is written here, and fail at all else.
func says(words map[string]string) run {
	return func(_ context.Context, program string, args ...string) ([]byte, error) {
		out, ok := words[strings.Join(append([]string{program}, args...), " ")]
		if !ok {
			return nil, errors.New("exit status 1")
		}
		return []byte(out), nil
	}
}

var (
	oldSystemd = systemd{run: says(map[string]string{"systemctl --version": "systemd 252 (252.38-1~deb12u1)\n+PAM"})}
	newSystemd = systemd{run: says(map[string]string{"systemctl --version": "systemd 254\n"})}
	aLaunchd   = launchd{agents: "/Users/ann/Library/LaunchAgents", uid: 501}
	aTasks     = tasks{account: `DESK\Ann & "Co"`}
)

var (
	plainSpec = Spec{Program: "/usr/local/bin/allod", Home: "/home/ann/.config/allod"}
	fullSpec  = Spec{Program: "/home/ann/my $HOME 100% 'bin'/\"ünï\\code\"/allod", Home: "/srv/a b/${X}/%h", Config: `/etc/al"l'od<&>\n.json`, Path: "/usr/bin:/home/ann/ü $x/bin"}
)

// TestGolden: what is written is what was looked at by a person.
func TestGolden(t *testing.T) {
	for name, c := range map[string]struct {
		p    platform
		spec Spec
	}{
		"allod-agent.service":      {oldSystemd, plainSpec},
		"allod-agent-254.service":  {newSystemd, plainSpec},
		"allod-agent-full.service": {oldSystemd, fullSpec},
		"agent.plist":              {aLaunchd, plainSpec},
		"agent-full.plist":         {aLaunchd, fullSpec},
		"agent-task.xml":           {aTasks, plainSpec},
		"agent-task-full.xml":      {aTasks, fullSpec},
	} {
		got := c.p.write(t.Context(), c.spec)
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: it is now\n%s\nLook at it, and write it with -update.", name, got)
		}
	}
}

// TestBackoff: a version that is not known gets what every version understands.
func TestBackoff(t *testing.T) {
	for said, grows := range map[string]bool{
		"systemd 253 (253.1)\n": false, "systemd 254 (254.1)\n+PAM": true, "systemd 300\n": true, "systemd 254~rc1 (x)": false, "": false, "systemd": false, "systemd x": false,
	} {
		got := systemd{run: says(map[string]string{"systemctl --version": said})}.backoff(t.Context())
		if strings.Contains(got, "RestartSteps") != grows {
			t.Errorf("%q: %s", said, got)
		}
	}
	if got := (systemd{run: says(nil)}).backoff(t.Context()); got != "RestartSec=30s\n" {
		t.Errorf("no answer: %s", got)
	}
}

// TestVerify: systemd itself finds nothing wrong with a unit.
func TestVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	odd := filepath.Join(dir, `a "b' \c $d %e ü`)
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(odd, "allod")); err != nil {
		t.Fatal(err)
	}
	verify := func(unit []byte) string {
		path := filepath.Join(dir, unitName)
		if err := os.WriteFile(path, unit, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", "--user", "--man=no", "verify", path)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "SYSTEMD_LOG_LEVEL=warning")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "failed: " + string(out)
		}
		return string(out)
	}
	if said := verify([]byte("[Service]\nExecStart=" + self + "\nRestart=perhaps\n")); said == "" {
		t.Skip("systemd-analyze finds nothing wrong with anything here")
	}
	real := systemd{run: execute}
	for _, program := range []string{self, filepath.Join(odd, "allod")} {
		spec := fullSpec
		spec.Program = program
		if said := verify(real.write(t.Context(), spec)); said != "" {
			t.Errorf("%s: %s", program, said)
		}
	}
}

// specs are what a definition may have to carry.
func specs() *rapid.Generator[Spec] {
	part := rapid.StringOfN(rapid.OneOf(
		rapid.SampledFrom([]rune(`\"'%$ ;#{}<>&=,|~^:!@+-*?[]abc`)), rapid.Rune().Filter(func(r rune) bool { return fits(string(r)) }),
	), 1, 20, 200)
	path := rapid.Map(part, func(s string) string { return "/" + s })
	return rapid.Custom(func(t *rapid.T) Spec {
		s := Spec{Program: path.Draw(t, "program"), Home: path.Draw(t, "home")}
		if rapid.Bool().Draw(t, "has config") {
			s.Config = path.Draw(t, "config")
		}
		if rapid.Bool().Draw(t, "has path") {
			s.Path = path.Draw(t, "path")
		}
		return s
	})
}

// TestWordsSurvive: each manager, by its own rules, starts the words that were
// meant, and what reads a definition reads them too.
func TestWordsSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := specs().Draw(t, "spec")
		words := spec.words()
		for name, c := range map[string]struct {
			p     platform
			start func(text []byte) ([]string, error)
		}{
			"systemd": {oldSystemd, systemdStarts}, "launchd": {aLaunchd, launchdStarts}, "tasks": {aTasks, windowsStarts},
		} {
			text := c.p.write(context.Background(), spec)
			if got, ok := c.p.read(text); !ok || got != spec {
				t.Fatalf("%s: read as %+v, %v\n%s", name, got, ok, text)
			}
			got, err := c.start(text)
			if err != nil || !slices.Equal(got, words) {
				t.Fatalf("%s starts %q, %v\nwant   %q\n%s", name, got, err, words, text)
			}
		}
	})
}

// systemdStarts reads a unit as systemd.syntax(7), systemd.service(5) and
// systemd.unit(5) say: lines, words with quotes and C's escapes, then specifiers.
func systemdStarts(text []byte) ([]string, error) {
	var line string
	for l := range strings.Lines(string(text)) {
		l = strings.TrimRight(l, "\n")
		if strings.HasPrefix(l, "#") {
			continue
		}
		if strings.HasSuffix(l, `\`) {
			return nil, errors.New("a line goes on")
		}
		if rest, ok := strings.CutPrefix(l, "ExecStart="); ok {
			if line != "" {
				return nil, errors.New("two commands")
			}
			line = rest
		}
	}
	var words []string
	var word []byte
	quote, inWord := byte(0), false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\':
			i++
			if i == len(line) || !strings.ContainsRune(`\"'`, rune(line[i])) {
				return nil, errors.New("an escape that this test does not know")
			}
			word, inWord = append(word, line[i]), true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word = append(word, c)
		case c == '"' || c == '\'':
			quote, inWord = c, true
		case c == ' ' || c == '\t':
			if inWord {
				words = append(words, string(word))
			}
			word, inWord = nil, false
		case c == ';' && !inWord:
			return nil, errors.New("a second command")
		default:
			word, inWord = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, errors.New("an open quote")
	}
	if inWord {
		words = append(words, string(word))
	}
	for i, w := range words {
		var out strings.Builder
		for j := 0; j < len(w); j++ {
			if w[j] == '%' {
				if j++; j == len(w) || w[j] != '%' {
					return nil, errors.New("a specifier")
				}
			}
			out.WriteByte(w[j])
		}
		words[i] = out.String()
	}
	program, ok := strings.CutPrefix(words[0], ":")
	if !ok {
		return nil, errors.New("variables are put in")
	}
	words[0] = program
	if strings.ContainsAny(program, `"'\`) {
		return nil, errors.New("Executable name contains special characters")
	}
	if program == "/bin/sh" && words[1] == "-c" && words[2] == `exec "$0" "$@"` {
		words = words[3:] // by the rules of sh(1)
	}
	return words, nil
}

func launchdStarts(text []byte) ([]string, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = true
	var words []string
	var key, chars string
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return words, nil
		}
		if err != nil {
			return nil, err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			chars = ""
		case xml.CharData:
			chars += string(tok)
		case xml.EndElement:
			switch {
			case tok.Name.Local == "key":
				key = chars
			case tok.Name.Local == "string" && key == "ProgramArguments":
				words = append(words, chars)
			}
		}
	}
}

// windowsStarts reads arguments as CommandLineToArgvW is documented to.
func windowsStarts(text []byte) ([]string, error) {
	var units []uint16
	for i := 2; i+1 < len(text); i += 2 {
		units = append(units, uint16(text[i])|uint16(text[i+1])<<8)
	}
	var task struct {
		Command   string `xml:"Actions>Exec>Command"`
		Arguments string `xml:"Actions>Exec>Arguments"`
		Account   string `xml:"Principals>Principal>UserId"`
	}
	d := xml.NewDecoder(strings.NewReader(string(utf16.Decode(units))))
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	if err := d.Decode(&task); err != nil {
		return nil, err
	}
	if task.Account != aTasks.account {
		return nil, errors.New("another account")
	}
	words := []string{task.Command}
	line, quoted, inWord := task.Arguments, false, false
	var word strings.Builder
	for i := 0; i < len(line); {
		n := 0
		for i+n < len(line) && line[i+n] == '\\' {
			n++
		}
		i += n
		if i < len(line) && line[i] == '"' {
			word.WriteString(strings.Repeat(`\`, n/2))
			if n%2 == 1 {
				word.WriteByte('"')
			} else {
				quoted = !quoted
			}
			inWord = true
			i++
			continue
		}
		word.WriteString(strings.Repeat(`\`, n))
		inWord = inWord || n > 0
		if i == len(line) {
			break
		}
		if c := line[i]; (c == ' ' || c == '\t') && !quoted {
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		} else {
			word.WriteByte(c)
			inWord = true
		}
		i++
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// TestPropertyList: Python's reader, where there is one, reads the whole list.
func TestPropertyList(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", `import io,plistlib,sys
p=plistlib.load(io.BytesIO(sys.stdin.buffer.read()))
print("\n".join(p["ProgramArguments"]))
print(p["Label"],p["RunAtLoad"],p["KeepAlive"],p["Umask"],p["ThrottleInterval"],p["StandardErrorPath"]==p["StandardOutPath"])`)
	cmd.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8")
	cmd.Stdin = bytes.NewReader(aLaunchd.write(t.Context(), fullSpec))
	out, err := cmd.CombinedOutput()
	want := strings.Join(fullSpec.words(), "\n") + "\n" + label + " True {'SuccessfulExit': False} 63 30 True\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: %s\nwant %s", err, out, want)
	}
}

// TestReadsItsOwnOnly: a definition that was changed where it says what is
// started is not ours.
func TestReadsItsOwnOnly(t *testing.T) {
	unit := string(oldSystemd.write(t.Context(), plainSpec))
	list := string(aLaunchd.write(t.Context(), plainSpec))
	for what, text := range map[string]string{
		"no marker":           strings.TrimPrefix(unit, "#"),
		"nothing":             "",
		"no command":          strings.Replace(unit, "ExecStart=", "ExecStop=", 1),
		"two commands":        unit + "\nExecStart=/bin/true\n",
		"a command before":    unit + "\nExecStartPre=/bin/true\n",
		"bare words":          strings.Replace(unit, `"agent"`, "agent", 1),
		"another command":     strings.Replace(unit, `"service"`, `"run"`, 1),
		"another flag":        strings.Replace(unit, `"--home"`, `"--hom"`, 1),
		"variables":           strings.Replace(unit, `":/`, `"/`, 1),
		"a specifier":         strings.Replace(unit, "/ann/", "/%u/", 1),
		"an open quote":       strings.Replace(unit, `/allod"`+"\nRestart", "/allod\nRestart", 1),
		"an escape":           strings.Replace(unit, "/ann/", `/\x61nn/`, 1),
		"two spaces":          strings.Replace(unit, `"agent" `, `"agent"  `, 1),
		"a word at the end":   strings.Replace(unit, "allod\"\nRestart", "allod\" \"x\"\nRestart", 1),
		"words that go on":    strings.Replace(unit, "allod\"\nRestart", "allod\" \\\nRestart", 1),
		"a configuration off": strings.Replace(unit, "allod\"\nRestart", "allod\" \"--config\" \"\"\nRestart", 1),
	} {
		if text == unit {
			t.Fatalf("%s: nothing was changed", what)
		}
		if s, ok := oldSystemd.read([]byte(text)); ok {
			t.Errorf("%s: read as %+v", what, s)
		}
	}
	for what, text := range map[string]string{
		"no comment": strings.Replace(list, "Written by", "written by", 1), "another program": strings.Replace(list, "<string>agent<", "<string>x<", 1),
		"markup": strings.Replace(list, "/ann/", "/<b/>ann/", 1), "a reference": strings.Replace(list, "/ann/", "/&#97;nn/", 1), "cut": list[:len(plistHead)+20],
	} {
		if s, ok := aLaunchd.read([]byte(text)); ok || text == list {
			t.Errorf("%s: read as %+v", what, s)
		}
	}
	task := aTasks.write(t.Context(), plainSpec)
	for what, text := range map[string][]byte{"no mark": task[2:], "odd": task[:len(task)-1], "cut": task[:len(task)/2], "UTF-8": []byte(taskHead)} {
		if s, ok := aTasks.read(text); ok {
			t.Errorf("%s: read as %+v", what, s)
		}
	}
	// What stands elsewhere is the owner's.
	if _, ok := oldSystemd.read([]byte(strings.Replace(unit, "[Service]", "[Service]\nMemoryMax=1G", 1))); !ok {
		t.Error("a limit of the owner's makes the unit a stranger's")
	}
}

// FuzzRead: nothing that is read makes a reader fall, and what is read is written
// alike.
func FuzzRead(f *testing.F) {
	for _, p := range []platform{oldSystemd, aLaunchd, aTasks} {
		f.Add(p.write(context.Background(), plainSpec))
		f.Add(p.write(context.Background(), fullSpec))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, p := range []platform{oldSystemd, aLaunchd, aTasks} {
			spec, ok := p.read(text)
			if !ok || spec.check() != nil {
				continue
			}
			if again, ok := p.read(p.write(t.Context(), spec)); !ok || again != spec {
				t.Errorf("%+v came back as %+v", spec, again)
			}
		}
	})
}

func TestPaths(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("whole paths look otherwise here")
	}
	good := plainSpec
	for what, c := range map[string]struct {
		change func(s *Spec, path string)
		path   string
		ok     bool
	}{
		"whole":             {func(s *Spec, p string) { s.Program = p }, "/a b/%$\"'\\ü😀", true},
		"4096":              {func(s *Spec, p string) { s.Home = p }, "/" + strings.Repeat("a", 4095), true},
		"4097":              {func(s *Spec, p string) { s.Home = p }, "/" + strings.Repeat("a", 4096), false},
		"relative program":  {func(s *Spec, p string) { s.Program = p }, "allod", false},
		"no program":        {func(s *Spec, p string) { s.Program = p }, "", false},
		"no home":           {func(s *Spec, p string) { s.Home = p }, "", false},
		"relative config":   {func(s *Spec, p string) { s.Config = p }, "config.json", false},
		"no config":         {func(s *Spec, p string) { s.Config = p }, "", true},
		"a new line":        {func(s *Spec, p string) { s.Home = p }, "/a\nExecStart=/bin/evil", false},
		"a return":          {func(s *Spec, p string) { s.Config = p }, "/a\rb", false},
		"nothing at all":    {func(s *Spec, p string) { s.Program = p }, "/a\x00b", false},
		"no UTF-8":          {func(s *Spec, p string) { s.Program = p }, "/a\xffb", false},
		"a line separator":  {func(s *Spec, p string) { s.Program = p }, "/a\u2028b", false},
		"no character":      {func(s *Spec, p string) { s.Program = p }, "/a\uffffb", false},
		"PATH with an end":  {func(s *Spec, p string) { s.Path = p }, "/bin:/a\nb", false},
		"PATH as it can be": {func(s *Spec, p string) { s.Path = p }, "/bin:/a b", true},
	} {
		s := good
		c.change(&s, c.path)
		if err := s.check(); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrPath) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
