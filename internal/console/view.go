package console

import (
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode"
)

//go:embed page.gohtml
var pageText string

//go:embed style.css
var style string

var pages = template.Must(template.New("page").Parse(pageText))

// policy lets a page load nothing, run nothing and be framed by nobody. Its one
// style is named by its digest.
var policy = func() string {
	digest := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) +
		"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

// page is what is shown.
type page struct {
	status   int
	retry    int64 // seconds to wait; zero says nothing
	location string

	Title   string
	Problem string
	Text    string
	Again   bool // offer the first page once more
	Ask     bool // offer to log in
	In      bool // logged in
	Nodes   []line
	More    int // nodes that are not shown
}

type line struct{ ID, Hostname, Cluster, State, Age string }

// Style is the page's one style.
func (page) Style() template.CSS { return template.CSS(style) }

// maxShown bounds how much of a text is shown, in characters.
const maxShown = 120

// shown is a text of somebody else as a part of one line: what would control,
// reorder or hide text is made visible, and what is long is cut.
func shown(text string) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > maxShown {
			return b.String() + "…"
		}
		if !unicode.IsPrint(r) || unicode.In(r, unicode.Mn, unicode.Me) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

// age is how long ago a node reported, in its largest unit.
func age(n NodeLine) string {
	if !n.Seen {
		return "never"
	}
	d := max(n.Age, 0)
	switch {
	case d >= 48*time.Hour:
		return count(int(d/(24*time.Hour)), "day")
	case d >= 2*time.Hour:
		return count(int(d/time.Hour), "hour")
	case d >= 2*time.Minute:
		return count(int(d/time.Minute), "minute")
	}
	return count(int(d/time.Second), "second")
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of + " ago"
	}
	return strconv.Itoa(n) + " " + of + "s ago"
}
