// Package weburl reads URLs the way browsers and the contract's other programs
// do: by the WHATWG URL standard, which net/url follows in neither direction.
//
// It refuses to fetch, resolve or join anything.
package weburl

import (
	"strings"
	"unicode"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"github.com/allodhq/allod/refusal"
)

// What this package refuses.
var (
	ErrURL = refusal.NewKind("url-invalid", 400,
		"This is not an absolute URL.",
		"Give a whole URL with scheme and host, as a browser's address bar takes it.")
	ErrScheme = refusal.NewKind("url-not-web", 400,
		"The URL does not begin with http or https, so opening it could run something instead of showing a page.",
		"Give an http or https URL.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "URLs", Kinds: []*refusal.Kind{ErrURL, ErrScheme}}

// URL is an absolute URL in its normal form. Dial and compare what [URL.String]
// says, never the text it was read from: the two can name different hosts to
// different parsers.
type URL struct {
	href, scheme, host string
}

// MaxURL bounds the text of a URL, in bytes. It is what programs on the web can
// be expected to carry, and keeps the parser, whose work grows with the square
// of some texts, from being kept busy.
const MaxURL = 2048

// Parse reads an absolute URL. It returns [ErrURL], also for a text or a normal
// form above [MaxURL].
func Parse(text string) (URL, error) {
	if len(text) > MaxURL {
		return URL{}, ErrURL
	}
	u, err := parser.Parse(text)
	if err != nil {
		return URL{}, ErrURL
	}
	// A few texts have a normal form that is too long, or that the parser refuses
	// or reads otherwise. What is dialled must be what was judged.
	href := u.Href(false)
	if len(href) > MaxURL {
		return URL{}, ErrURL
	}
	if again, err := parser.Parse(href); err != nil || again.Href(false) != href {
		return URL{}, ErrURL
	}
	return URL{href: href, scheme: strings.TrimSuffix(u.Protocol(), ":"), host: u.Hostname()}, nil
}

var parser = whatwg.NewParser()

// Trim removes the white space that JavaScript's trim removes: it is how the
// contract's other programs clean a URL before they read and keep it.
func Trim(text string) string {
	return strings.TrimFunc(text, func(r rune) bool {
		switch r {
		case '\t', '\n', '\v', '\f', '\r', '\u2028', '\u2029', '\ufeff':
			return true
		}
		return unicode.Is(unicode.Zs, r)
	})
}

// ParseWeb reads an absolute http or https URL. It returns [ErrURL] or
// [ErrScheme].
func ParseWeb(text string) (URL, error) {
	u, err := Parse(text)
	switch {
	case err != nil:
		return URL{}, err
	case u.scheme != "http" && u.scheme != "https":
		return URL{}, ErrScheme
	}
	return u, nil
}

// String is the URL in its normal form.
func (u URL) String() string { return u.href }

// Scheme is the scheme in lower case, without the colon.
func (u URL) Scheme() string { return u.scheme }

// Host is the host without the port, in its normal form: lower case, addresses
// written out, IPv6 in brackets. It is empty where the URL has none.
func (u URL) Host() string { return u.host }
