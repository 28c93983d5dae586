package backend

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// machine is a machine whose ports are servers of the test's.
type machine struct {
	mu    sync.Mutex
	ports map[string]string // "127.0.0.1:8080" to where it really is
	asked map[string]int
}

func newMachine(t *testing.T, servers map[string]http.HandlerFunc) *machine {
	m := &machine{ports: map[string]string{}, asked: map[string]int{}}
	for port, handler := range servers {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" || r.Header.Get("X-Api-Key") != "" {
				t.Errorf("port %s was sent a key", port)
			}
			m.mu.Lock()
			m.asked[port+r.URL.Path]++
			m.mu.Unlock()
			handler(w, r)
		}))
		t.Cleanup(s.Close)
		m.ports["127.0.0.1:"+port] = s.Listener.Addr().String()
	}
	return m
}

func (m *machine) dial(ctx context.Context, network, address string) (net.Conn, error) {
	real, ok := m.ports[address]
	if !ok {
		return nil, errors.New("nobody listens")
	}
	return systemDial(ctx, network, real)
}

// answers serves texts by path, and 404 elsewhere.
func answers(server string, texts map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if server != "" {
			w.Header().Set("Server", server)
		}
		text, ok := texts[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
	}
}

func TestDetect(t *testing.T) {
	const list = `{"object":"list","data":[{"id":"m","object":"model"}]}`
	locked := func(server string, texts map[string]string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if _, ok := texts[r.URL.Path]; ok {
				answers(server, texts)(w, r)
				return
			}
			if server != "" {
				w.Header().Set("Server", server)
			}
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	at := func(port string) string { return "http://127.0.0.1:" + port + "/v1" }
	m := []string{"m"}
	for what, c := range map[string]struct {
		servers map[string]http.HandlerFunc
		want    []Found
	}{
		"nothing": {nil, nil},
		"in the table's order": {map[string]http.HandlerFunc{
			"1337": locked("", nil), "1234": answers("", map[string]string{"/v1/models": list}), "8000": answers("uvicorn", map[string]string{"/v1/models": list}),
			"8080": answers("llama.cpp", map[string]string{"/v1/models": list}), "11434": answers("", map[string]string{"/v1/models": list}),
		}, []Found{
			{"ollama", at("11434"), m, false}, {"llamacpp", at("8080"), m, false}, {"vllm", at("8000"), m, false}, {"lmstudio", at("1234"), m, false}, {"jan", at("1337"), nil, true},
		}},
		"llama.cpp by its models": {map[string]http.HandlerFunc{"8080": answers("", map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"llamacpp"}]}`})}, []Found{{"llamacpp", at("8080"), m, false}}},
		"llama.cpp, locked":       {map[string]http.HandlerFunc{"8080": locked("llama.cpp", nil)}, []Found{{"llamacpp", at("8080"), nil, true}}},
		"MLX":                     {map[string]http.HandlerFunc{"8080": answers("BaseHTTP/0.6 Python/3.12.1", map[string]string{"/v1/models": list})}, []Found{{"mlx", at("8080"), m, false}}},
		"LocalAI":                 {map[string]http.HandlerFunc{"8080": answers("", map[string]string{"/v1/models": list, "/readyz": "OK"})}, []Found{{"localai", at("8080"), m, false}}},
		"LocalAI, locked":         {map[string]http.HandlerFunc{"8080": locked("", map[string]string{"/readyz": ""})}, []Found{{"localai", at("8080"), nil, true}}},
		"LocalAI in its place": {map[string]http.HandlerFunc{
			"8080": answers("", map[string]string{"/v1/models": list, "/readyz": "OK"}), "1234": answers("", map[string]string{"/v1/models": list}),
		}, []Found{{"lmstudio", at("1234"), m, false}, {"localai", at("8080"), m, false}}},
		"none of them":   {map[string]http.HandlerFunc{"8080": answers("nginx", map[string]string{"/v1/models": list})}, []Found{{wirebackend.Generic, at("8080"), m, false}}},
		"without models": {map[string]http.HandlerFunc{"11434": answers("", map[string]string{"/v1/models": `{"data":[]}`})}, []Found{{"ollama", at("11434"), nil, false}}},
		"a web site": {map[string]http.HandlerFunc{
			"8000": answers("", map[string]string{"/v1/models": "<html>"}), "8080": answers("llama.cpp", nil), "1234": answers("", map[string]string{"/v1/models": "{}"}),
		}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			host := newMachine(t, c.servers)
			got := Detect(t.Context(), Config{Dial: host.dial, Key: NewKey(canary), Resolve: func(context.Context, string) ([]netip.Addr, error) {
				t.Error("a name was looked up, and no free row has one")
				return nil, errors.New("no names")
			}})
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			for path, n := range host.asked {
				if n != 1 {
					t.Errorf("%s was asked for %d times", path, n)
				}
			}
			if len(got) > 0 && host.asked["8080/readyz"] > 0 && (got[0].ID == "llamacpp" || got[0].ID == "mlx") {
				t.Error("a server that said who it is is asked again")
			}
			if host.asked["1234/readyz"]+host.asked["11434/readyz"] > 0 {
				t.Error("an address of one row is asked who it is")
			}
		})
	}
}

// TestDetectElsewhere holds that a row's own address and network count.
func TestDetectElsewhere(t *testing.T) {
	list := answers("", map[string]string{"/api/models": `{"data":[{"id":"m"}]}`, "/v1/models": `{"data":[{"id":"n"}]}`})
	host := newMachine(t, map[string]http.HandlerFunc{"9999": list, "11434": list})
	nobody := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody listens") }
	got := Detect(t.Context(), Config{ID: "vllm", BaseURL: "http://127.0.0.1:9999/api", Dial: host.dial}, Config{Dial: nobody}, Config{ID: "jan", BaseURL: "no URL"})
	if want := []Found{{"vllm", "http://127.0.0.1:9999/api", []string{"m"}, false}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestDetectTime holds that dead addresses are asked side by side.
func TestDetectTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := make(chan string, 20)
		start := time.Now()
		got := Detect(t.Context(), Config{Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			dials <- address
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		if took := time.Since(start); got != nil || took != detectTime || len(dials) != 5 {
			t.Errorf("%+v after %v, %d dials", got, took, len(dials))
		}
		synctest.Wait()
	})
}
