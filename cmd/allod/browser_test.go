//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browser is a tab of a real browser in which pages run no script.
type browser struct {
	t     *testing.T
	ctx   context.Context
	shots string // the folder for pictures
}

// newBrowser starts a headless browser. Where there is none the test is skipped,
// unless ALLOD_BROWSER=required.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		if os.Getenv("ALLOD_BROWSER") == "required" {
			t.Fatal("there is no Chromium or Chrome, and ALLOD_BROWSER=required")
		}
		t.Skip("there is no Chromium or Chrome to look at the pages with; ALLOD_BROWSER=required makes that a failure")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it starts for root in no other way
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx, shots: t.ArtifactDir()}
	b.do("start the browser", call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}),
		chromedp.Navigate("data:text/html,<title>still</title><script>document.title='ran'</script>"))
	if title, err := chromedp.Run(b.ctx, chromedp.Title()); err != nil || title != "still" {
		t.Fatalf("a page ran its script: %q, %v", title, err)
	}
	return b
}

// call is a command of the protocol as a step.
func call[P any](command cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (b *browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// load does what leads to another page and holds it to its status and heading.
func (b *browser) load(what string, status int64, heading string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	r, err := chromedp.RunResponse(b.ctx, steps...)
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	if got := b.text("h1"); r.Status != status || got != heading {
		b.t.Fatalf("%s: %d %q, want %d %q", what, r.Status, got, status, heading)
	}
	b.look(what)
}

// text is what a person reads in an element.
func (b *browser) text(selector string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.TextContent(chromedp.CSS(selector)))
	if err != nil {
		b.t.Fatalf("%s: %v", selector, err)
	}
	return strings.TrimSpace(text)
}

// faults finds what does not fit the screen, is hard to read, is too small for a
// finger, or has no name for a screen reader. Only the tool runs it; the page
// itself runs nothing.
const faults = `(() => {
	const found = [], width = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth > width) found.push('the page is ' + document.documentElement.scrollWidth + ' wide');
	const rgb = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); };
	const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	for (const e of document.body.querySelectorAll('*')) {
		const box = e.getBoundingClientRect(), style = getComputedStyle(e), name = e.tagName + '#' + e.id + ' "' + e.textContent.slice(0, 20) + '"';
		if (!box.width) continue;
		if (box.left < 0 || box.right > width + .5) found.push(name + ' reaches from ' + box.left + ' to ' + box.right);
		const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.tagName === 'INPUT';
		if (own) {
			let under = e, back;
			while (under && !(back = rgb(getComputedStyle(under).backgroundColor))) under = under.parentElement;
			const [a, b] = [light(rgb(style.color)), light(back || [255, 255, 255])], ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
			if (ratio < 4.5) found.push(name + ' has a contrast of ' + ratio.toFixed(2));
			if (parseFloat(style.fontSize) < 16) found.push(name + ' is written in ' + style.fontSize);
		}
		if (['INPUT', 'BUTTON'].includes(e.tagName)) {
			if (box.height < 44) found.push(name + ' is ' + box.height + ' high');
			if (!(e.labels?.[0]?.textContent || e.textContent).trim()) found.push(name + ' has no name');
		}
	}
	return found;
})()`

// look looks at the page as on a phone and on a desk, by day and by night.
func (b *browser) look(what string) {
	b.t.Helper()
	for _, screen := range []struct {
		name          string
		width, height int64
		scheme        string
		options       []chromedp.EmulateViewportOption
	}{
		{"desk", 1280, 800, "light", nil},
		{"desk-dark", 1280, 800, "dark", nil},
		{"phone-dark", 360, 740, "dark", []chromedp.EmulateViewportOption{chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulatePortrait}},
		{"phone", 360, 740, "light", []chromedp.EmulateViewportOption{chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulatePortrait}},
	} {
		name := fmt.Sprintf("%s, %s", what, screen.name)
		b.do(name, chromedp.EmulateViewport(screen.width, screen.height, screen.options...),
			call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: screen.scheme}}}))
		found, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](faults))
		if err != nil {
			b.t.Fatalf("%s: %v", name, err)
		}
		for _, fault := range found {
			b.t.Errorf("%s: %s", name, fault)
		}
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		if err != nil {
			b.t.Fatalf("%s: %v", name, err)
		}
		file := strings.NewReplacer(" ", "-", ",", "").Replace(name) + ".png"
		if err := os.WriteFile(filepath.Join(b.shots, file), picture, 0o644); err != nil {
			b.t.Fatal(err)
		}
		b.drawn(name, picture, screen.width, screen.scheme == "dark")
	}
}

// drawn holds a picture to the width of its screen, to its colours, and to having
// something written on it.
func (b *browser) drawn(what string, picture []byte, width int64, dark bool) {
	b.t.Helper()
	m, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	size := m.Bounds()
	ground := m.At(size.Min.X, size.Min.Y)
	ink := 0
	const step = 3 // letters are larger
	for y := size.Min.Y; y < size.Max.Y; y += step {
		for x := size.Min.X; x < size.Max.X; x += step {
			if m.At(x, y) != ground {
				ink++
			}
		}
	}
	if size.Dx() != int(width) || ink*1000*step*step < size.Dx()*size.Dy() {
		b.t.Errorf("%s: the picture is %v, and %d points in a grid of %d are drawn on", what, size, ink, step)
	}
	if red, _, _, _ := ground.RGBA(); (red < 0x8000) != dark {
		b.t.Errorf("%s: the ground is %v", what, ground)
	}
}

// TestPairingPage pairs a real agent with a real site on the page, as a person
// does it: with a browser, without script, by a link that the app asked for.
func TestPairingPage(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := serve(t, filepath.Join(t.TempDir(), "data"))
	a := newMachine(t, newModel(t))
	link := func(body string) string {
		t.Helper()
		var made anyJSON
		if code := s.call("POST", "/v1/pairing-links", body, &made); code != 201 {
			t.Fatalf("link: %d %v", code, made)
		}
		return made["url"].(string)
	}
	code := chromedp.ID("code")
	decide := func(do string) chromedp.Action[chromedp.Void] {
		return chromedp.Click(chromedp.CSS(`button[value="` + do + `"]`))
	}

	// Whoever finds the page without a link can look, and not decide.
	cmd, shown := a.startPairing(s.url)
	b.load("the page alone", 200, "Pair a device", chromedp.Navigate(s.url+"/pair?code="+shown["userCode"].(string)))
	b.load("the device without a link", 200, "The device under this code", decide("look"))
	if got := b.text("#fingerprint"); got != shown["fingerprint"] {
		t.Errorf("the page shows %s, the agent %s", got, shown["fingerprint"])
	}
	if n, err := chromedp.Run(b.ctx, chromedp.Evaluate[int](`document.querySelectorAll('form, button').length`)); err != nil || n > 0 {
		t.Errorf("%d forms and buttons, %v", n, err)
	}

	// By a link: a wrong code by the keyboard, the right one, compared and approved.
	first := link(`{"owner":"alice"}`)
	b.load("a link", 200, "Pair a device", chromedp.Navigate(first))
	b.load("a wrong code", 404, "Pair a device", chromedp.SendKeys(code, "ABCD-2346\r"))
	typed := strings.ToLower(strings.ReplaceAll(shown["userCode"].(string), "-", " "))
	b.load("the device", 200, "Is this your device?", chromedp.SendKeys(code, typed+"\r"))
	if got := b.text("#fingerprint"); got != shown["fingerprint"] {
		t.Fatalf("the page shows %s, the agent %s", got, shown["fingerprint"])
	}
	if who, model := b.text("#owner"), b.text("#offers"); who != "alice" || !strings.Contains(model, "m1: answers prompts, for you only") {
		t.Errorf("for %q, which offers %q", who, model)
	}
	b.load("paired", 200, "Paired", decide("approve"))
	var paired anyJSON
	if err := json.Unmarshal(a.said.next(t), &paired); err != nil || paired["owner"] != "alice" {
		t.Fatalf("the agent collects %v, %v", paired, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("connect: %v\n%s", err, a.errs)
	}
	b.load("the link again", 404, "This link no longer works", chromedp.Navigate(first))

	// A link for one code shows the device at once. This one has as wide a name as
	// there is, and is refused.
	a.do("agent", "name", strings.Repeat("W", 120))
	cmd, shown = a.startPairing(s.url)
	second := link(fmt.Sprintf(`{"owner":"alice","code":%q}`, shown["userCode"]))
	b.load("the device of a link", 200, "Is this your device?", chromedp.Navigate(second))
	if got := b.text("#fingerprint"); got != shown["fingerprint"] {
		t.Errorf("the page shows %s, the agent %s", got, shown["fingerprint"])
	}
	b.load("refused", 200, "Refused", decide("deny"))
	if err := cmd.Wait(); err == nil || !strings.Contains(a.errs.String(), "\"pairing-denied\"") {
		t.Errorf("the agent ends with %v\n%s", err, a.errs)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the site ends with %v", err)
	}
	for _, url := range []string{first, second} {
		if token := url[strings.LastIndexByte(url, '/')+1:]; strings.Contains(s.errs.String(), token) {
			t.Error("the site logged a link")
		}
	}
}

// TestPairingPageOfOneOwner: a site for the one who runs it pairs on its page
// without a link, in a browser that says where its form comes from.
func TestPairingPageOfOneOwner(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--owner", "carol")
	a := newMachine(t, newModel(t))
	cmd, shown := a.startPairing(s.url)
	// A page of somebody else sends the form in the owner's browser.
	trap := fmt.Sprintf(`<form method="post" action="%s/pair"><input name="code" value="%s"><button name="do" value="approve">Win a prize</button></form>`, s.url, shown["userCode"])
	b.do("another page", chromedp.Navigate("data:text/html,"+url.PathEscape(trap)))
	b.load("sent by another page", 403, "This did not work", chromedp.Click(chromedp.CSS("button")))
	b.load("one owner", 200, "Pair a device", chromedp.Navigate(shown["verificationUrl"].(string)))
	b.load("one owner, the device", 200, "Is this your device?", chromedp.SendKeys(chromedp.ID("code"), shown["userCode"].(string)+"\r"))
	if got := b.text("#fingerprint"); got != shown["fingerprint"] {
		t.Fatalf("the page shows %s, the agent %s", got, shown["fingerprint"])
	}
	b.load("one owner, paired", 200, "Paired", chromedp.Click(chromedp.CSS(`button[value="approve"]`)))
	var paired anyJSON
	if err := json.Unmarshal(a.said.next(t), &paired); err != nil || paired["owner"] != "carol" {
		t.Fatalf("the agent collects %v, %v", paired, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("connect: %v\n%s", err, a.errs)
	}
}
