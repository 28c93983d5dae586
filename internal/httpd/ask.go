package httpd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/refusal"
)

// MaxAdminBody bounds a request to an admin socket and its answer, in bytes.
const MaxAdminBody = 4 << 20

// A party that is just starting holds its folder and does not listen yet. A
// command holds one for a moment and never listens.
const (
	StartTime = 3 * time.Second
	StartStep = 50 * time.Millisecond
	heldTime  = 2 * time.Second
)

// TakeFolder calls take, which locks a folder. Another command that holds the
// folder for a moment is waited for; a party that runs there is not, and neither
// is anybody who holds it for long: then it returns datadir.ErrRunning. It also
// returns take's other errors and the context's cause.
func TakeFolder(ctx context.Context, dir string, take func() error) error {
	for end := time.Now().Add(heldTime); ; {
		err := take()
		if !errors.Is(err, datadir.ErrRunning) || answers(dir) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(StartStep):
		}
	}
}

// answers reports whether a party answers on the admin socket.
func answers(dir string) bool {
	c, err := net.Dial("unix", filepath.Join(dir, AdminSocket))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// Asker asks a party on its admin socket.
type Asker struct {
	Client *http.Client
	// Start is how long one that is starting is waited for.
	Start time.Duration
	// Timeout is how long an answer may take; zero means for ever.
	Timeout time.Duration
	// Registers have the refusals that the party answers with.
	Registers []refusal.Registry
	// Silent is returned where nobody answers, and Strange for an answer that is
	// none, as another version of the party may give.
	Silent, Strange *refusal.Kind
}

// Ask sends a request and returns the body of its answer. It returns the party's
// refusal, Silent, Strange, and context.Canceled where the caller ended it.
func (a Asker) Ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	if a.Timeout > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, a.Timeout)
		defer cancel()
	}
	silent := func(err error) error {
		if errors.Is(ctx.Err(), context.Canceled) {
			return context.Canceled
		}
		return a.Silent.Because(err)
	}
	resp, err := a.send(ctx, method, path, body)
	if err != nil {
		return nil, silent(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, MaxAdminBody))
	if err != nil {
		return nil, silent(err)
	}
	if resp.StatusCode == http.StatusOK {
		return text, nil
	}
	return nil, a.refused(text)
}

// send asks until somebody listens, for a moment.
func (a Asker) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	for end := time.Now().Add(a.Start); ; {
		q, err := http.NewRequestWithContext(ctx, method, "http://party"+path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		resp, err := a.Client.Do(q)
		var dial *net.OpError
		if err == nil || !errors.As(err, &dial) || dial.Op != "dial" || time.Now().After(end) {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(StartStep):
		}
	}
}

// refused finds the refusal that a party answered with, and its detail.
func (a Asker) refused(text []byte) error {
	var said struct {
		Error   string `json:"error"`
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &said) != nil {
		return a.Strange
	}
	for _, r := range a.Registers {
		k := r.Find(said.Error)
		if k == nil {
			continue
		}
		if detail, ok := strings.CutPrefix(said.Message, k.Meaning()+" "); ok {
			return k.With(detail)
		}
		return k
	}
	return a.Strange
}

// Reply answers a request on an admin socket with v, or with the refusal.
func Reply(w http.ResponseWriter, v any, err error) {
	status, body := http.StatusOK, []byte(nil)
	if err == nil {
		body, err = json.Marshal(v)
	}
	if err != nil {
		status, body = refusal.HTTP(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
