package weburl_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/wire/ai/weburl"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]struct{ href, scheme, host string }{
		"http://a.example":            {"http://a.example/", "http", "a.example"},
		"HTTPS://USER@A.EXAMPLE:443/": {"https://USER@a.example/", "https", "a.example"},
		"https://a.example:8443/x":    {"https://a.example:8443/x", "https", "a.example"},
		"http://a.example/b/../c/./d": {"http://a.example/c/d", "http", "a.example"},
		"http:a.example":              {"http://a.example/", "http", "a.example"},
		"http:\\\\a.example\\b":       {"http://a.example/b", "http", "a.example"},
		"ht\ntp://a.exa\tmple/":       {"http://a.example/", "http", "a.example"},
		" \x00http://a.example \x1f":  {"http://a.example/", "http", "a.example"},
		"http://127.1/":               {"http://127.0.0.1/", "http", "127.0.0.1"},
		"http://2130706433":           {"http://127.0.0.1/", "http", "127.0.0.1"},
		"http://0x7F.0.0.01":          {"http://127.0.0.1/", "http", "127.0.0.1"},
		"http://１２７.0.0.1":            {"http://127.0.0.1/", "http", "127.0.0.1"},
		"http://%31%32%37.0.0.1":      {"http://127.0.0.1/", "http", "127.0.0.1"},
		"http://[0:0:0::0001]:80/":    {"http://[::1]/", "http", "[::1]"},
		"http://[::FFFF:127.0.0.1]":   {"http://[::ffff:7f00:1]/", "http", "[::ffff:7f00:1]"},
		"http://BÜCHER.example/ä b":   {"http://xn--bcher-kva.example/%C3%A4%20b", "http", "xn--bcher-kva.example"},
		"http://a@b@c.example/":       {"http://a%40b@c.example/", "http", "c.example"},
		"http://a.example\\@b":        {"http://a.example/@b", "http", "a.example"},
		"javascript:alert(1)":         {"javascript:alert(1)", "javascript", ""},
		"localhost:3000":              {"localhost:3000", "localhost", ""},
		"file:///etc/passwd":          {"file:///etc/passwd", "file", ""},
		"foo://A.example/x":           {"foo://A.example/x", "foo", "A.example"},
		"https://a.example/?q=1#f":    {"https://a.example/?q=1#f", "https", "a.example"},
		"data:,x y":                   {"data:,x y", "data", ""},
	} {
		u, err := weburl.Parse(text)
		if err != nil || u.String() != want.href || u.Scheme() != want.scheme || u.Host() != want.host {
			t.Errorf("%q: %q, %q, %q, %v", text, u.String(), u.Scheme(), u.Host(), err)
		}
	}
	for _, text := range []string{
		"", " ", "a", "/a", "//a.example/", "?a", "#a", ":", "://a.example", "http:", "http://", "https:///", "http://:80/", "http://@/",
		"http://a b/", "http://a.example:99999/", "http://a.example:-1/", "http://a.example:8x/", "http://256.0.0.1/", "http://1.2.3.4.5/",
		"http://[::1/", "http://::1/", "http://[::g]/", "http://[::1%25lo]/", "http://a<b/", "http://a^b/", "http://%/", "http://%00/", "http://a\x00b/",
		"http://xn--/", "1http://a.example/", "ht tp://a.example/", "http//a.example/", "http://\xff/",
		// The parser takes these, and refuses what it makes of them.
		"http://≠/", "https://!İ/",
	} {
		if u, err := weburl.Parse(text); err != weburl.ErrURL || u != (weburl.URL{}) {
			t.Errorf("%q: %q, %v", text, u.String(), err)
		}
	}
	if u := (weburl.URL{}); u.String() != "" || u.Scheme() != "" || u.Host() != "" {
		t.Errorf("the zero value is %q", u)
	}
}

func TestParseWeb(t *testing.T) {
	for _, text := range []string{"http://a.example", "https://a.example", "HTTP://a.example", "https:a.example", " http://a.example\n"} {
		if u, err := weburl.ParseWeb(text); err != nil || u.Host() != "a.example" || u.Scheme() != strings.ToLower(strings.TrimSpace(text)[:len(u.Scheme())]) {
			t.Errorf("%q: %v, %v", text, u, err)
		}
	}
	for _, text := range []string{
		"javascript:alert(1)", "JavaScript:alert(1)", "java\nscript:alert(1)", " javascript:http://a.example/", "data:text/html,x", "vbscript:x", "file:///x",
		"ftp://a.example/", "ws://a.example/", "wss://a.example/", "httpx://a.example/", "xhttp://a.example/", "http-x:a", "localhost:80", "blob:https://a.example/x",
		"about:blank", "mailto:a@a.example", "x:", "view-source:https://a.example/",
	} {
		if u, err := weburl.ParseWeb(text); err != weburl.ErrScheme || u != (weburl.URL{}) {
			t.Errorf("%q: %q, %v", text, u.String(), err)
		}
	}
	for _, text := range []string{"", "a.example", "//a.example", "http://", "https://a b/"} {
		if u, err := weburl.ParseWeb(text); err != weburl.ErrURL || u != (weburl.URL{}) {
			t.Errorf("%q: %q, %v", text, u.String(), err)
		}
	}
}

// TestTrim holds the white space of JavaScript, which is not Go's.
func TestTrim(t *testing.T) {
	white := "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
	for _, r := range white {
		for _, text := range []string{string(r), string(r) + "a", "a" + string(r), string(r) + "a" + string(r), white + "a" + white} {
			if got, want := weburl.Trim(text), strings.Repeat("a", strings.Count(text, "a")); got != want {
				t.Errorf("%q with U+%04X: %q", text, r, got)
			}
		}
		if got := weburl.Trim("a" + string(r) + "b"); got != "a"+string(r)+"b" {
			t.Errorf("U+%04X within a text is gone: %q", r, got)
		}
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) || strings.ContainsRune(white, r) {
			continue
		}
		if text := string(r); weburl.Trim(text) != text {
			t.Errorf("U+%04X is no white space", r) // as U+0085, U+180E, U+200B
		}
	}
	for _, text := range []string{"", "a", "\xff a \xff", "a\x00"} {
		if got := weburl.Trim(text); got != text {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// stable holds that the normal form reads as itself.
func stable(text string) error {
	u, err := weburl.Parse(text)
	if err != nil {
		if u != (weburl.URL{}) {
			return fmt.Errorf("%q: an error came with the value %v", text, u)
		}
		return nil
	}
	v, err := weburl.Parse(u.String())
	if err != nil || v != u || v.Host() != u.Host() || v.Scheme() != u.Scheme() {
		return fmt.Errorf("%q reads as %q, which reads as %q, %v", text, u.String(), v.String(), err)
	}
	if u.Scheme() == "" || u.Scheme() != strings.ToLower(u.Scheme()) || !strings.HasPrefix(u.String(), u.Scheme()+":") {
		return fmt.Errorf("%q has the scheme %q", text, u.Scheme())
	}
	web, err := weburl.ParseWeb(text)
	if isWeb := u.Scheme() == "http" || u.Scheme() == "https"; isWeb != (err == nil) || isWeb && (web != u || u.Host() == "") {
		return fmt.Errorf("%q as a web URL: %q, %v", text, web.String(), err)
	}
	return nil
}

func TestNormalFormIsStable(t *testing.T) {
	pieces := []string{
		"http:", "https:", "foo:", "file:", "ws:", "data:", "//", "/", "\\", "@", ":", "?", "#", ".", "..", "%2e", "%00", "%25", "%zz", "%C3%A4",
		"a", "b", "A", "localhost", "127.0.0.1", "0x7f.1", "1", "256", "[", "]", "::1", "::ffff:1.2.3.4", "é", "ß", "İ", "ſ", "K", "１", "。", "xn--", "xn--a",
		"-", "_", " ", "\t", "\n", "\x00", "\u200d", "\u00ad", "\u2028", "|", "C:", "C|", "'", "\"", "<", ">", "`", "{", "}", "^", "~", "!", "$", "&", "*", "+",
		",", ";", "=", "%", "80", "443", "\xff", "\U0001F4A9", "\u0301", "\u0338", "≠", "\ufeff", "ẞ", "ς", "％", "．", "0", "7", "f",
	}
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 6).Draw(t, "parts")
		start := rapid.SampledFrom([]string{"", "http://", "https:", "foo://", "foo:", "file:"}).Draw(t, "start")
		if err := stable(start + strings.Join(parts, "")); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzParse reads anything as a URL.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"http://a.b/c?d#e", "https://u:p@host:80/../x/./y", "foo:bar baz", "file:///C|/x/..", "http://[::1]:80/", "http://127.1", "http://0x7f.1/%zz",
		"foo:/.//p", "foo://h/..", "data:text/plain,  x", "javascript:alert(1)  #", "http://exämple.org/ä?ü#ö", "http://xn--a/", "http:\\\\a\\b",
		"blob:http://a/b", "foo:a  ?q", "foo://[1::2]/", "file://localhost/", "http://a/\u2028", "http:!İ", "http://≠",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := stable(text); err != nil {
			t.Fatal(err)
		}
		trimmed := weburl.Trim(text)
		if weburl.Trim(trimmed) != trimmed || !strings.Contains(text, trimmed) {
			t.Fatalf("%q is trimmed to %q", text, trimmed)
		}
	})
}

// TestKinds holds the names, statuses and order of the refusals. Programs and
// documents name them.
func TestKinds(t *testing.T) {
	want := []string{"url-invalid 400", "url-not-web 400"}
	var got []string
	for _, k := range weburl.Kinds.Kinds {
		got = append(got, fmt.Sprint(k.Name(), " ", k.Status()))
	}
	if !slices.Equal(got, want) || weburl.Kinds.Title != "URLs" {
		t.Errorf("%q: %q", weburl.Kinds.Title, got)
	}
}

// TestLongURLs holds that a text above the bound is refused without being
// parsed: the parser's work grows with the square of some texts.
func TestLongURLs(t *testing.T) {
	at := "https://a.example/" + strings.Repeat("x", weburl.MaxURL-len("https://a.example/"))
	if _, err := weburl.Parse(at); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	if _, err := weburl.Parse("https://a.example/" + strings.Repeat("ä", (weburl.MaxURL-18)/6)); err != nil {
		t.Errorf("a normal form at the bound: %v", err)
	}
	escaped := "https://a.example/" + strings.Repeat("ä", (weburl.MaxURL-18)/6+1) // six bytes each in the normal form
	for _, text := range []string{at + "x", escaped, "http://" + strings.Repeat("@", 30<<20) + "a/"} {
		if u, err := weburl.Parse(text); !errors.Is(err, weburl.ErrURL) || u != (weburl.URL{}) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
}
