package main

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/allodhq/allod/internal/node/control"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// TestF10StepsOverTheSocket goes through the three methods of a Pallet that is a
// process, in the contract's bytes: out of order, repeated, and with the process
// killed after each of them.
func TestF10StepsOverTheSocket(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	var pallet *exec.Cmd
	start := func() {
		pallet = m.command("pallet")
		pallet.Stderr = &logs{t: t}
		if err := pallet.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "Pallet listens", func() bool {
			_, err := control.Ask(t.Context(), m.socket, control.Options{User: uint32(os.Getuid())}, "none", []byte(`{}`))
			return !errors.Is(err, control.ErrSilent)
		})
	}
	end := func() {
		_ = pallet.Process.Signal(syscall.SIGKILL)
		_ = pallet.Wait()
	}
	start()
	defer func() { end() }()
	ask := func(method, request string) (string, error) {
		answer, err := control.Ask(t.Context(), m.socket, control.Options{User: uint32(os.Getuid())}, method, []byte(request))
		return string(answer), err
	}
	refused := func(what, method, request, name string) {
		t.Helper()
		answer, err := ask(method, request)
		var said *control.Error
		if !errors.As(err, &said) || said.Code != name {
			t.Errorf("%s: %s, %v, want %s", what, answer, err, name)
		}
	}
	// twice asks, kills Pallet, and asks once more: the same bytes.
	twice := func(method, request string) string {
		t.Helper()
		first, err := ask(method, request)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		for _, killed := range []bool{false, true} {
			if killed {
				end()
				start()
			}
			if again, err := ask(method, request); err != nil || again != first {
				t.Errorf("%s again, killed %v: %s, %v, first %s", method, killed, again, err, first)
			}
		}
		return first
	}
	proposal := func(pallet enroll.CredentialHash) enroll.Proposal {
		origin, err := enroll.ParseOrigin("https://controller.example.org")
		if err != nil {
			t.Fatal(err)
		}
		code, err := enroll.NewJumpCode(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		b, err := enroll.NewBearer(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return enroll.Proposal{
			Origin: origin, Hostname: "one", EnrollmentID: "e-1", BootstrapProofHash: code.Hash(),
			Spark: enroll.Proposed{CredentialHash: b.Hash()}, Pallet: enroll.Proposed{CredentialHash: pallet},
		}
	}
	bind := func(p enroll.Proposal) string {
		text, err := enroll.BindRequestCodec.Append(nil, enroll.BindRequest{Enrollment: p})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	activate := func(p enroll.Proposal) string {
		a, err := enroll.Acknowledge(p, "node-1")
		if err != nil {
			t.Fatal(err)
		}
		text, err := enroll.ActivateRequestCodec.Append(nil, enroll.ActivateRequest{Enrollment: p, Acknowledgement: a})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const prepare = `{"authority":{"generation":0,"sessionEpoch":0}}`
	stranger, err := enroll.NewBearer(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	refused("bind before prepare", enroll.MethodPalletBind, bind(proposal(stranger.Hash())), "pallet-not-prepared")
	refused("activate before prepare", enroll.MethodPalletActivate, activate(proposal(stranger.Hash())), "pallet-not-bound")
	for _, other := range []string{`{"authority":{"generation":1,"sessionEpoch":0}}`, `{"authority":{"generation":0,"sessionEpoch":0},"bearer":"x"}`, `{}`} {
		refused("another authority", enroll.MethodPalletPrepare, other, "control-message")
	}
	hash := twice(enroll.MethodPalletPrepare, prepare)
	response, err := enroll.PrepareResponseCodec.Read([]byte(hash))
	if err != nil {
		t.Fatal(err)
	}
	p := proposal(response.CredentialHash)
	refused("activate before bind", enroll.MethodPalletActivate, activate(p), "pallet-not-bound")
	bound := twice(enroll.MethodPalletBind, bind(p))
	if !strings.Contains(bound, `"nodeId":null`) {
		t.Errorf("bound before there is a node: %s", bound)
	}
	other := p
	other.Hostname = "two"
	refused("activate what it is not bound to", enroll.MethodPalletActivate, activate(other), "pallet-not-bound")
	active := twice(enroll.MethodPalletActivate, activate(p))
	if want := `"nodeId":"node-1","credentialHash":"` + response.CredentialHash.Text() + `","generation":1,"sessionEpoch":1`; !strings.Contains(active, want) {
		t.Errorf("%s, want %s", active, want)
	}
	if late := twice(enroll.MethodPalletBind, bind(p)); late != bound {
		t.Errorf("bind, repeated late: %s, first %s", late, bound)
	}
	refused("prepare once more", enroll.MethodPalletPrepare, prepare, "pallet-active")
	refused("bind to another", enroll.MethodPalletBind, bind(other), "pallet-active")
	// What is asked of a controller is unknown here.
	for _, method := range []string{enroll.MethodEnroll, enroll.MethodRotate, enroll.MethodCredential, enroll.MethodState} {
		refused(method, method, `{}`, "control-method")
	}
}
