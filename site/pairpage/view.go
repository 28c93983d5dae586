package pairpage

import (
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

//go:embed page.gohtml
var pageText string

//go:embed style.css
var style string

var pages = template.Must(template.New("page").Parse(pageText))

// policy lets the page load nothing, run nothing and be framed by nobody. Its one
// style is named by its digest.
var policy = func() string {
	digest := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) +
		"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

// page is what is shown.
type page struct {
	status int
	retry  int64 // seconds to wait; zero says nothing

	Title   string
	Problem string
	Text    string
	Form    bool // ask for a code
	Code    string
	// Owner is for whom devices are paired here; empty where nobody is known.
	Owner string
	// Fixed is set where the operator chose the owner.
	Fixed bool
	// LinkLeft is how long the link lasts.
	LinkLeft string
	Device   *device
	Paired   *paired
}

// paired says who works for whom now.
type paired struct{ Label, Owner string }

// Style is the page's one style.
func (page) Style() template.CSS { return template.CSS(style) }

// device is a device that waits, with what it says of itself made harmless.
type device struct {
	Owner       string
	Fixed       bool
	Code        string
	Typed       string   // sent again with the decision; empty where the link has the code
	Fingerprint []string // its groups, with the dashes behind them
	Left        string
	Label       string
	Platform    string
	Version     string
	Offers      []offer
	More        int // offers that are not shown
}

type offer struct{ Model, Kind, Scope string }

// form asks for a code.
func (h *handler) form(w who) page {
	p := page{status: http.StatusOK, Title: "Pair a device", Form: true, Owner: shown(string(w.owner)), Fixed: w.token == ""}
	if w.token != "" {
		p.LinkLeft = left(w.link.ExpiresAt.Time().Sub(h.Clock()))
	}
	return p
}

// maxOffers bounds how many offers are shown.
const maxOffers = 12

// device shows a device that waits.
func (h *handler) device(w who, p site.Pairing) page {
	d := &device{
		Owner: shown(string(w.owner)), Fixed: w.token == "", Code: p.UserCode,
		Fingerprint: strings.SplitAfter(p.Device.String(), "-"),
		Left:        left(p.ExpiresAt.Time().Sub(h.Clock())),
		Label:       shown(p.Daemon.Label), Platform: word(platforms, p.Daemon.Platform), Version: shown(p.Daemon.Version),
		More: max(0, len(p.Capabilities)-maxOffers),
	}
	if w.token != "" {
		d.Left = left(min(p.ExpiresAt, w.link.ExpiresAt).Time().Sub(h.Clock()))
	}
	if w.link.UserCode == "" {
		d.Typed = p.UserCode
	}
	for _, c := range p.Capabilities[:len(p.Capabilities)-d.More] {
		d.Offers = append(d.Offers, offer{shown(c.Model), word(kinds, c.Kind), word(scopes, c.OfferScope)})
	}
	title := "Is this your device?"
	if w.owner == "" {
		title = "The device under this code"
	}
	return page{status: http.StatusOK, Title: title, Device: d}
}

func approved(r site.Runner) page {
	return page{status: http.StatusOK, Title: "Paired", Paired: &paired{shown(r.Daemon.Label), shown(string(r.Owner))}}
}

func denied() page {
	return page{status: http.StatusOK, Title: "Refused", Text: "The device was told no, and works for nobody here. You can close this page. If it was yours after all, start pairing anew on it."}
}

// The words for what the contract names.
var (
	platforms = map[ai.Platform]string{ai.PlatformDarwin: "macOS", ai.PlatformLinux: "Linux", ai.PlatformWin32: "Windows"}
	kinds     = map[ai.Kind]string{ai.KindGenerate: "answers prompts", ai.KindChat: "chats"}
	scopes    = map[ai.OfferScope]string{
		ai.OfferSelf: "for you only", ai.OfferNamed: "also for people its owner has named", ai.OfferPublic: "for anyone",
	}
)

// word is a name of the contract in words, or itself where it is newer than they.
func word[K ~string](words map[K]string, name K) string {
	if w, ok := words[name]; ok {
		return w
	}
	return shown(string(name))
}

// maxShown bounds how much of a text is shown, in characters.
const maxShown = 120

// shown is a text of somebody else as a part of one line: what would control,
// reorder or hide text is made visible, what stands on top of each other is cut,
// and so is what is long.
func shown(text string) string {
	var b strings.Builder
	n, marks := 0, 0
	for _, r := range text {
		if n == maxShown {
			return b.String() + "…"
		}
		n++
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
			if marks++; marks > maxMarks {
				continue
			}
		case r != joiner && r != nonJoiner:
			marks = 0
		}
		switch {
		case unicode.Is(unicode.Zs, r):
			r = ' '
		case hides(r):
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

// maxMarks is how many marks one letter carries in any script that is written.
const maxMarks = 4

// Writing some scripts, and some pictures, takes these two. They only join or part
// what stands beside them.
const nonJoiner, joiner = '\u200c', '\u200d'

// hides reports whether a character is not seen as itself: it controls, turns the
// order around, has no width or ends a line.
func hides(r rune) bool {
	return r != joiner && r != nonJoiner && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp, blank))
}

// blank are letters and marks without a picture.
var blank = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x034f, Hi: 0x034f, Stride: 1}, {Lo: 0x115f, Hi: 0x1160, Stride: 1}, {Lo: 0x17b4, Hi: 0x17b5, Stride: 1},
	{Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0x3164, Hi: 0x3164, Stride: 1}, {Lo: 0xffa0, Hi: 0xffa0, Stride: 1},
}}

// left is how long something lasts.
func left(d time.Duration) string {
	switch {
	case d >= 2*time.Minute:
		return count(int(d/time.Minute), "minute")
	case d >= time.Second:
		return count(int(d/time.Second), "second")
	}
	return "no time"
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return strconv.Itoa(n) + " " + of + "s"
}
