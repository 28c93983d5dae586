package appapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// specification is openapi.json, with a router over its paths.
type specification struct {
	doc  *openapi3.T
	mux  *http.ServeMux
	item map[string]*openapi3.PathItem // by the pattern of the mux
}

var spec = sync.OnceValues(func() (*specification, error) {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.json")
	if err != nil {
		return nil, err
	}
	s := &specification{doc, http.NewServeMux(), map[string]*openapi3.PathItem{}}
	for path, item := range doc.Paths.Map() {
		s.mux.Handle(path, http.NotFoundHandler())
		s.item[path] = item
	}
	return s, nil
})

var specOptions = &openapi3filter.Options{
	IncludeResponseStatus: true, RejectWhenRequestBodyNotSpecified: true, SkipSettingDefaults: true,
	AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
}

// described holds an answer against the description: its status, and every member
// of its body, are listed there. So is what was asked, where it was accepted. A
// path that is not listed can only be refused.
func described(ctx context.Context, r *http.Request, body string, status int, header http.Header, answer []byte) error {
	s, err := spec()
	if err != nil {
		return err
	}
	_, path := s.mux.Handler(r)
	item := s.item[path]
	var operation *openapi3.Operation
	if item != nil {
		operation = item.GetOperation(r.Method)
	}
	if operation == nil {
		return refused(s.doc, status, answer)
	}
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: parameters(path, r.URL), QueryParams: r.URL.Query(), Options: specOptions,
		Route: &routers.Route{Spec: s.doc, Path: path, PathItem: item, Method: r.Method, Operation: operation},
	}
	if status < 300 {
		asked := r.Clone(ctx)
		asked.Body = io.NopCloser(strings.NewReader(body))
		if body == "" {
			asked.Body, asked.ContentLength = http.NoBody, 0
		}
		input.Request = asked
		if err := openapi3filter.ValidateRequest(ctx, input); err != nil {
			return fmt.Errorf("what was asked is not described: %w", err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: status, Header: header, Options: specOptions}
	return openapi3filter.ValidateResponse(ctx, out.SetBodyBytes(answer))
}

// parameters are the parts of a path that stand for something.
func parameters(pattern string, u *url.URL) map[string]string {
	got := map[string]string{}
	parts := strings.Split(u.EscapedPath(), "/")
	for i, name := range strings.Split(pattern, "/") {
		if strings.HasPrefix(name, "{") {
			got[strings.Trim(name, "{}")], _ = url.PathUnescape(parts[i])
		}
	}
	return got
}

func refused(doc *openapi3.T, status int, answer []byte) error {
	if status != http.StatusNotFound && status != http.StatusUnauthorized {
		return fmt.Errorf("an unlisted path answers %d", status)
	}
	var v any
	if err := json.Unmarshal(answer, &v); err != nil {
		return err
	}
	return doc.Components.Schemas["Refusal"].Value.VisitJSON(v, openapi3.EnableJSONSchema2020())
}

func TestSpecIsOpenAPI(t *testing.T) {
	s, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	if !s.doc.IsOpenAPI31OrLater() {
		t.Error("it is not of version 3.1")
	}
	// What is served is the file.
	file, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(t)
	w := a.call(a.key("reads", "alice", "read"), "GET", "/v1/openapi.json", "")
	var served, kept any
	if err := errors.Join(json.Unmarshal(w.Body.Bytes(), &served), json.Unmarshal(file, &kept)); err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusOK || fmt.Sprint(served) != fmt.Sprint(kept) {
		t.Errorf("it is served as %d %.200s", w.Code, w.Body)
	}
}

// TestSpecBites holds that the check of every answer notices: a member more in any
// object of it, a member less, and a status that is not listed.
func TestSpecBites(t *testing.T) {
	a := newApp(t)
	a.start(1)
	runner := a.must(200, "POST", "/v1/pairings/CODE-0001/approve", `{"owner":"alice"}`)["id"].(string)
	a.ask("a", "alice")
	a.finish(answered(runner))
	a.ask("b", "alice")
	for _, c := range []struct {
		method, path string
		objects      int // in the answer
	}{
		{"GET", "/v1/jobs/a", 4},
		{"GET", "/v1/jobs", 3},
		{"GET", "/v1/runners", 3},
		{"GET", "/v1/availability?owner=alice", 1},
		{"POST", "/v1/sweep", 1},
		{"GET", "/v1/jobs/none", 1},
	} {
		w := a.call(a.admin, c.method, c.path, "")
		check := func(status int, body []byte) error {
			r := httptest.NewRequest(c.method, c.path, nil)
			return described(t.Context(), r, "", status, w.Header(), body)
		}
		if err := check(w.Code, w.Body.Bytes()); err != nil {
			t.Fatal(err)
		}
		if check(http.StatusTeapot, w.Body.Bytes()) == nil {
			t.Errorf("%s %s: a status that is not listed is not noticed", c.method, c.path)
		}
		var v any
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		found := 0
		everyObject(v, func(o map[string]any) {
			found++
			o["canary"] = 1
			if text, err := json.Marshal(v); err != nil || check(w.Code, text) == nil {
				t.Errorf("%s %s: a member more is not noticed: %s, %v", c.method, c.path, text, err)
			}
			delete(o, "canary")
		})
		if found != c.objects {
			t.Errorf("%s %s: %d objects, want %d: %s", c.method, c.path, found, c.objects, w.Body)
		}
		if o := v.(map[string]any); len(o) > 0 {
			for _, name := range []string{"id", "jobs", "runners", "available", "error"} {
				delete(o, name)
			}
			if text, err := json.Marshal(v); err != nil || check(w.Code, text) == nil {
				t.Errorf("%s %s: a member less is not noticed: %s, %v", c.method, c.path, text, err)
			}
		}
		if check(w.Code, bytes.Replace(w.Body.Bytes(), []byte(`{`), []byte(`[`), 1)) == nil {
			t.Errorf("%s %s: what is no JSON is not noticed", c.method, c.path)
		}
	}
	// And what is asked.
	r := httptest.NewRequest("POST", "/v1/jobs", nil)
	r.Header.Set("Content-Type", "application/json")
	job := a.call(a.admin, "GET", "/v1/jobs/b", "")
	for body, ok := range map[string]bool{
		`{"kind":"llm.generate","owner":"alice",` + payload + `}`:            true,
		`{"kind":"llm.generate","owner":"alice",` + payload + `,"canary":1}`: false,
	} {
		if err := described(t.Context(), r, body, http.StatusCreated, job.Header(), job.Body.Bytes()); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// everyObject calls fn for each object in a value.
func everyObject(v any, fn func(map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, v := range v {
			everyObject(v, fn)
		}
	case map[string]any:
		for _, v := range v {
			everyObject(v, fn)
		}
		fn(v)
	}
}
