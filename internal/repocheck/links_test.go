package repocheck

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// documents returns the Markdown files that people read.
func documents(names []string) (docs []string) {
	for _, name := range names {
		if strings.HasSuffix(name, ".md") && !inTestdata(name) {
			docs = append(docs, name)
		}
	}
	return docs
}

// A docset is the files that documents can refer to.
type docset struct {
	files   map[string]bool            // every file, and every folder that holds one
	tops    map[string]bool            // the folders at the top
	anchors map[string]map[string]bool // of each document
	pages   map[string]page
}

// newDocset reads the documents among the files.
func newDocset(names []string, read func(string) string) docset {
	s := docset{map[string]bool{".": true}, map[string]bool{}, map[string]map[string]bool{}, map[string]page{}}
	for _, name := range names {
		s.files[name] = true
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			s.files[dir] = true
		}
		if top, _, ok := strings.Cut(name, "/"); ok {
			s.tops[top] = true
		}
	}
	for _, name := range documents(names) {
		text := read(name)
		s.anchors[name] = anchors(text)
		s.pages[name] = split(text)
	}
	return s
}

// A page is a document with its code taken out. Code is not read as links or headings.
type page struct {
	prose string // code is blank, lines are kept
	spans []span
}

// A span is text in backticks.
type span struct {
	line int
	text string
}

var comment = regexp.MustCompile(`(?s)<!--.*?-->`)

// split takes comments, code blocks and text in backticks out of a document.
func split(text string) (p page) {
	var prose strings.Builder
	fence := ""
	text = comment.ReplaceAllStringFunc(text, blank)
	// Blocks go by lines.
	for line := range strings.Lines(text) {
		trimmed := strings.TrimLeft(line, " \t>")
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) && strings.Trim(trimmed, fence[:1]+" \t\r\n") == "" {
				fence = ""
			}
			line = blank(line)
		case strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~"):
			fence = trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, trimmed[:1]))]
			line = blank(line)
		}
		prose.WriteString(line)
	}
	// Spans may run over the end of a line, but not of a paragraph.
	rest := prose.String()
	var out strings.Builder
	line := 1
	for {
		start := strings.IndexByte(rest, '`')
		if start < 0 {
			break
		}
		mark := rest[start : len(rest)-len(strings.TrimLeft(rest[start:], "`"))]
		out.WriteString(rest[:start])
		line += strings.Count(rest[:start], "\n")
		rest = rest[start+len(mark):]
		end := closing(rest, mark)
		if end < 0 {
			continue // a lone backtick
		}
		p.spans = append(p.spans, span{line, rest[:end]})
		out.WriteString(blank(rest[:end]))
		line += strings.Count(rest[:end], "\n")
		rest = rest[end+len(mark):]
	}
	p.prose = out.String() + rest
	return p
}

// closing finds the end of a span: as many backticks as opened it.
func closing(s, mark string) int {
	for at := 0; at < len(s); {
		next := strings.IndexByte(s[at:], '`')
		if next < 0 || strings.Contains(s[:at+next], "\n\n") {
			return -1
		}
		at += next
		run := len(s[at:]) - len(strings.TrimLeft(s[at:], "`"))
		if run == len(mark) {
			return at
		}
		at += run
	}
	return -1
}

// blank keeps the lines of a text and nothing else.
func blank(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return ' '
	}, s)
}

var (
	heading  = regexp.MustCompile(`^ {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$`)
	named    = regexp.MustCompile(`<[a-zA-Z][^>]*\s(?:id|name)="([^"]+)"`)
	linkText = regexp.MustCompile(`!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])`)
	linkTo   = regexp.MustCompile(`\]\(\s*(<[^>\n]*>|[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)`)
	linkDef  = regexp.MustCompile(`(?m)^ {0,3}\[[^\]\n]+\]:[ \t]+(\S+)`)
	linkHTML = regexp.MustCompile(`<[a-zA-Z][^>]*\s(?:href|src)="([^"]+)"`)
	scheme   = regexp.MustCompile(`^(?:[a-zA-Z][a-zA-Z0-9+.-]*:|//)`)
)

// anchors returns the anchors of a document: of its headings, as GitHub makes them, and those it names.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	prose := strings.Split(split(text).prose, "\n")
	for i, line := range strings.Split(text, "\n") {
		// Code is blank in the prose, but a heading keeps the text of its code.
		m := heading.FindStringSubmatch(strings.TrimSuffix(line, "\r"))
		if m == nil || !strings.HasPrefix(strings.TrimLeft(prose[i], " "), "#") {
			continue
		}
		base := slug(m[1])
		name := base
		for n := 1; found[name]; n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		found[name] = true
	}
	for _, m := range named.FindAllStringSubmatch(strings.Join(prose, "\n"), -1) {
		found[m[1]] = true
	}
	return found
}

// slug is the anchor of a heading: lower case, no punctuation, hyphens for spaces.
func slug(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// checkLinks finds relative links and anchors that lead nowhere.
func checkLinks(s docset) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		prose := s.pages[name].prose
		for _, pattern := range []*regexp.Regexp{linkTo, linkDef, linkHTML} {
			for _, m := range pattern.FindAllStringSubmatchIndex(prose, -1) {
				target := strings.Trim(prose[m[2]:m[3]], "<>")
				if why := s.follow(name, target); why != "" {
					line := 1 + strings.Count(prose[:m[2]], "\n")
					problems = append(problems, fmt.Sprintf("%s:%d: %s: %s", name, line, target, why))
				}
			}
		}
	}
	return problems
}

// follow says why a link leads nowhere. Links to other hosts are not followed: a test must not need a network.
func (s docset) follow(from, target string) string {
	if scheme.MatchString(target) {
		return ""
	}
	file, anchor, hasAnchor := strings.Cut(target, "#")
	file, err := url.PathUnescape(file)
	if err != nil {
		return "it is not a valid link"
	}
	to := from
	switch {
	case strings.HasPrefix(file, "/"):
		to = path.Clean(strings.TrimPrefix(file, "/")) // GitHub reads it from the top of the repository
	case file != "":
		to = path.Join(path.Dir(from), file)
	case !hasAnchor:
		return "it is empty"
	}
	if !s.files[to] {
		return "there is no such file in the repository"
	}
	if known, isDocument := s.anchors[to]; hasAnchor && isDocument && !known[anchor] {
		return fmt.Sprintf("%s has no heading or anchor of that name", to)
	}
	return ""
}

var (
	pathShape  = regexp.MustCompile(`^(?:\./)?[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.*-]+)+/?$`)
	lineSuffix = regexp.MustCompile(`:[0-9]+$`)
)

// checkPaths finds names in backticks that look like paths of the repository and are none.
func checkPaths(s docset) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		for _, span := range s.pages[name].spans {
			// A command line names paths as well, so each word counts.
			for _, word := range strings.Fields(span.text) {
				if !s.exists(word) {
					problems = append(problems, fmt.Sprintf("%s:%d: %s", name, span.line, word))
				}
			}
		}
	}
	return problems
}

// exists reports whether a word is a path of the repository, or nothing that looks like one.
func (s docset) exists(word string) bool {
	word = strings.TrimRight(word, ",;:")
	word = lineSuffix.ReplaceAllString(word, "")
	if !pathShape.MatchString(word) {
		return true
	}
	word = strings.Trim(strings.TrimPrefix(word, "./"), "/")
	word = strings.TrimSuffix(word, "/...")
	top, _, below := strings.Cut(word, "/")
	if !below || !s.tops[top] || s.files[word] {
		return true
	}
	if strings.Contains(word, "*") {
		for file := range s.files {
			if ok, err := path.Match(word, file); err == nil && ok {
				return true
			}
		}
		return false
	}
	// A name of Go: internal/exact.Opt is in the folder internal/exact.
	folder, base := path.Split(word)
	pkg, member, ok := strings.Cut(base, ".")
	return ok && member != "" && unicode.IsUpper(rune(member[0])) && s.files[folder+pkg]
}

func repositoryDocs(t *testing.T) docset {
	t.Helper()
	s := newDocset(mustTracked(t), func(name string) string { return string(readTracked(t, name)) })
	if len(s.pages) == 0 {
		t.Fatal("the repository seems to have no documents")
	}
	return s
}

func TestLinksLeadSomewhere(t *testing.T) {
	report(t, rule{
		"These links in documents lead nowhere.",
		"a document that outlives what it names misleads whoever trusts it",
		"correct the link; an anchor is the heading in lower case, without punctuation and with hyphens for spaces",
	}, checkLinks(repositoryDocs(t)))
}

func TestNamedPathsExist(t *testing.T) {
	report(t, rule{
		"These paths in backticks do not exist.",
		"readers look for what a document names, and a wrong name costs them more than none",
		"correct the name, or write about what is planned without a path",
	}, checkPaths(repositoryDocs(t)))
}

func TestLinksControl(t *testing.T) {
	files := map[string]string{
		"README.md": "# Top\n\n" +
			"[fine](docs/guide.md) [fine](docs/guide.md#two-words) [fine](#top) [fine](docs) [fine](docs/) [fine](LICENSE#L1)\n" + // 3
			"[fine](https://example.org/docs/gone.md#x) [fine](mailto:a@example.org) ![fine](docs/a%20b.svg) [fine](</docs/guide.md>)\n" + // 4
			"[bad](docs/gone.md)\n" + // 5
			"[bad](docs/guide.md#three-words \"title\")\n" + // 6
			"[bad](#bottom) [bad](../outside.md)\n" + // 7
			"<a href=\"docs/gone.html\">bad</a> <img src=\"docs/a b.svg\">\n" + // 8
			"[bad][ref] `[fine](docs/code.md)` <!-- [fine](docs/comment.md) -->\n" + // 9
			"\n[ref]: docs/reference.md\n" + // 11
			"```\n[fine](docs/block.md)\n# not a heading\n```\n" +
			"[bad](#not-a-heading) [bad]()\n" + // 16
			"~~~~\n~~~\n[fine](docs/block.md)\n~~~~\n" +
			"[bad [fine](LICENSE)](docs/outer.md)\n", // 21
		"docs/guide.md": "# Two words\n## Two words\n## The `code` of *it*, isn't it?\n### [A link](../README.md) #\n<a id=\"made\"></a>\n" +
			"[fine](#two-words-1) [fine](#the-code-of-it-isnt-it) [fine](#a-link) [fine](#made) [fine](../README.md#top)\n" +
			"[bad](README.md) [bad](/docs/nowhere.md)\n",
		"docs/a b.svg":            "",
		"LICENSE":                 "",
		"x/testdata/broken.md":    "[fine](nowhere.md) `docs/nowhere.md`",
		"internal/exact/exact.go": "",
	}
	s := newDocset(slices.Sorted(maps.Keys(files)), func(name string) string { return files[name] })
	mustFind(t, checkLinks(s),
		"README.md:5: docs/gone.md", "README.md:6: docs/guide.md#three-words", "README.md:7: #bottom", "README.md:7: ../outside.md",
		"README.md:8: docs/gone.html", "README.md:11: docs/reference.md", "README.md:16: #not-a-heading", "README.md:16: : it is empty",
		"README.md:21: docs/outer.md", "docs/guide.md:7: README.md", "docs/guide.md:7: /docs/nowhere.md")

	files["README.md"] = "`docs/guide.md` `./docs/guide.md` `docs/guide.md:12` `internal/exact` `internal/exact/` `internal/...` `internal/exact.Opt`\n" +
		"`internal/*/exact.go` `http/1.1` `and/or` `docs` `https://example.org/docs/gone` `docs/<name>` `/docs/gone`\n" +
		"`docs/gone.md` and `go run ./internal/gone -out dist`\n" +
		"``docs/`tick` `` then `internal/exact/gone.go:3`, `docs/*.txt`, `internal/gone.Opt`\n" +
		"\n```\ndocs/block.md\n```\n"
	s = newDocset(slices.Sorted(maps.Keys(files)), func(name string) string { return files[name] })
	mustFind(t, checkPaths(s),
		"README.md:3: docs/gone.md", "README.md:3: ./internal/gone",
		"README.md:4: internal/exact/gone.go:3", "README.md:4: docs/*.txt", "README.md:4: internal/gone.Opt")
}
