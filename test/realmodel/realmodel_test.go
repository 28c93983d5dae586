package realmodel_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Models that the test makes. The server lists them with a tag that nobody asked for.
const (
	short   = "allod-short"   // says words, cut after limit tokens
	endless = "allod-endless" // says words as long as the server lets it
	quiet   = "allod-quiet"   // says nothing
	tag     = ":latest"

	limit = 24
)

// TestRealServer needs ALLOD_REAL_SERVER; see doc.go.
func TestRealServer(t *testing.T) {
	address := start(t)
	base := address + "/v1"
	create(t, address, short, tinyModel(1, rambles), limit)
	create(t, address, endless, tinyModel(2, rambles), -1)
	create(t, address, quiet, tinyModel(1, silent), limit)

	within := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), callLimit)
		t.Cleanup(cancel)
		return ctx
	}

	t.Run("lists its models with a tag", func(t *testing.T) {
		names, err := models(within(t), base)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		if want := []string{endless + tag, quiet + tag, short + tag}; !slices.Equal(names, want) {
			t.Errorf("listed %q, want %q", names, want)
		}
	})

	for _, name := range []string{short, short + tag, strings.ToUpper(short)} {
		t.Run("answers under the name "+name, func(t *testing.T) {
			a, err := chat(within(t), base, name, "ba du ki? \u00fc \U0001F600")
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%q, %s, %d tokens in, %d out", a.text, a.finish, a.promptTokens, a.tokens)
			if strings.TrimSpace(a.text) == "" || !utf8.ValidString(a.text) {
				t.Errorf("the text is %q", a.text)
			}
			if a.finish != "length" || a.tokens != limit || a.promptTokens == 0 {
				t.Errorf("finished by %q after %d tokens on %d, want \"length\" after %d", a.finish, a.tokens, a.promptTokens, limit)
			}
		})
	}

	t.Run("may say nothing", func(t *testing.T) {
		a, err := chat(within(t), base, quiet, "ba du ki?")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%q, %s, %d tokens in, %d out", a.text, a.finish, a.promptTokens, a.tokens)
		if a.text != "" || a.finish != "stop" {
			t.Errorf("the text is %q, finished by %q", a.text, a.finish)
		}
	})

	t.Run("does not know every model", func(t *testing.T) {
		_, err := chat(within(t), base, "allod-absent", "ba")
		if status := statusError(0); !errors.As(err, &status) || status != http.StatusNotFound {
			t.Errorf("the error is %v, want status 404", err)
		}
	})

	t.Run("as the agent asks", func(t *testing.T) { agentsOwn(t, base) })

	t.Run("goes on after a caller gave up", func(t *testing.T) {
		// Loaded before, so that the caller gives up while the model speaks.
		load := []byte(`{"model": "` + endless + `"}`)
		if status, read, err := call(within(t), http.MethodPost, address+"/api/generate", load); err != nil || status != http.StatusOK {
			t.Fatalf("the model was not loaded: status %d, %v\n%s", status, err, read)
		}
		ctx, cancel := context.WithCancel(within(t))
		// Given up when the server has the whole question.
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { cancel() },
		})
		if _, err := chat(ctx, base, endless, "ba"); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v, want that the call was given up", err)
		}
		if a, err := chat(within(t), base, short, "ba"); err != nil || a.tokens != limit {
			t.Errorf("the next caller got %d tokens and the error %v", a.tokens, err)
		}
	})
}
