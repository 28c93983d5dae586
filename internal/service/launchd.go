package service

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// label is the service's name to launchd.
const label = "com.github.allodhq.allod.agent"

// launchd is the part of launchd that belongs to a user at the screen.
type launchd struct {
	run run
	// agents is the folder of the user's own agents.
	agents string
	uid    int
}

func (l launchd) file() string         { return filepath.Join(l.agents, label+".plist") }
func (l launchd) log(spec Spec) string { return filepath.Join(spec.Home, LogFile) }
func (l launchd) domain() string       { return "gui/" + strconv.Itoa(l.uid) }
func (l launchd) target() string       { return l.domain() + "/" + label }

func (l launchd) begin(ctx context.Context) error {
	if _, err := l.run(ctx, "launchctl", "print", l.domain()); err != nil {
		return ErrNoManager.Because(err)
	}
	return nil
}

const (
	plistHead = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- Written by allod agent install; allod agent uninstall takes it away. -->
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>` + label + `</string>
	<key>ProgramArguments</key>
	<array>
`
	plistWord = "\t\t<string>"
	plistEnd  = "</string>\n"
)

// write is the property list. An agent that ends well is not started again: see
// [EndsForGood].
func (l launchd) write(_ context.Context, spec Spec) []byte {
	var b strings.Builder
	b.WriteString(plistHead)
	for _, w := range spec.words() {
		b.WriteString(plistWord + xmlText(w) + plistEnd)
	}
	b.WriteString(`	</array>
	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
	<key>ThrottleInterval</key>
	<integer>30</integer>
	<key>ExitTimeOut</key>
	<integer>60</integer>
	<key>Umask</key>
	<integer>63</integer>
	<key>StandardOutPath</key>
	<string>` + xmlText(l.log(spec)) + `</string>
	<key>StandardErrorPath</key>
	<string>` + xmlText(l.log(spec)) + `</string>
</dict>
</plist>
`)
	return []byte(b.String())
}

func xmlText(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a builder takes everything
	return b.String()
}

// read finds the words in the text itself: a list that another program wrote
// again is not ours any more.
func (l launchd) read(text []byte) (Spec, bool) {
	rest, ok := strings.CutPrefix(string(text), plistHead)
	if !ok {
		return Spec{}, false
	}
	var words []string
	for {
		word, more := strings.CutPrefix(rest, plistWord)
		if !more {
			return specOf(words)
		}
		word, rest, ok = strings.Cut(word, plistEnd)
		if !ok {
			return Spec{}, false
		}
		word, ok = unxml(word)
		if !ok {
			return Spec{}, false
		}
		words = append(words, word)
	}
}

// unxml reads the text of one element.
func unxml(text string) (string, bool) {
	d := xml.NewDecoder(bytes.NewReader([]byte("<t>" + text + "</t>")))
	var t string
	if d.Decode(&t) != nil {
		return "", false
	}
	_, err := d.Token()
	return t, err == io.EOF && xmlText(t) == text
}

func (l launchd) installed(context.Context) (notes []string, err error) {
	return []string{"The agent starts when you log in, and stops when you log out: launchd has no more for an ordinary user."}, nil
}

func (l launchd) loaded(ctx context.Context) bool {
	_, err := l.run(ctx, "launchctl", "print", l.target())
	return err == nil
}

func (l launchd) removing(ctx context.Context) error { return l.stop(ctx) }

func (l launchd) removed(context.Context) (notes []string, err error) { return nil, nil }

func (l launchd) start(ctx context.Context) error {
	// One that is loaded may be of an older definition.
	if err := l.stop(ctx); err != nil {
		return err
	}
	if _, err := l.run(ctx, "launchctl", "bootstrap", l.domain(), l.file()); err != nil {
		return ErrManager.Because(err)
	}
	return nil
}

// stop takes the service out of this session: one that is only ended is started
// again.
func (l launchd) stop(ctx context.Context) error {
	if !l.loaded(ctx) {
		return nil
	}
	if _, err := l.run(ctx, "launchctl", "bootout", l.target()); err != nil {
		return ErrManager.Because(err)
	}
	return nil
}

var launchdState = regexp.MustCompile(`(?m)^\s*state = (.*)$`)

func (l launchd) state(ctx context.Context, _ Spec) (State, error) {
	out, err := l.run(ctx, "launchctl", "print", l.target())
	if err != nil {
		return Stopped, nil // it is not loaded
	}
	if m := launchdState.FindSubmatch(out); m != nil && strings.TrimSpace(string(m[1])) == "running" {
		return Running, nil
	}
	return Stopped, nil
}

// environment: launchd tells nobody what it gives.
func (l launchd) environment(context.Context) (map[string]string, error) { return nil, nil }
