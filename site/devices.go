package site

import (
	"context"
	"strings"

	"github.com/allodhq/allod/wire/ai"
)

// Devices decides pairings and lists and revokes devices. Every method is for
// the app, on behalf of a person it has signed in.
type Devices struct{ c *core }

// Pending returns the device that waits under a code, for the page on which a
// person approves it. Show its fingerprint beside the one the device shows. It
// returns [ErrNoPairing].
func (d *Devices) Pending(ctx context.Context, userCode string) (Pairing, error) {
	return d.c.devs.Pairing(ctx, normalCode(userCode), d.c.now())
}

// Approve pairs the device that waits under a code with the owner. It returns
// [ErrNoPairing], or [ErrQuestion] for an owner that cannot be one.
func (d *Devices) Approve(ctx context.Context, userCode string, owner ai.Owner) (Runner, error) {
	if !plain(string(owner)) {
		return Runner{}, ErrQuestion.With("The owner is not 1 to 256 characters without control characters.")
	}
	id, err := newID(d.c.Rand, "runner_")
	if err != nil {
		return Runner{}, err
	}
	r, err := d.c.devs.Approve(ctx, Approval{
		UserCode: normalCode(userCode), Owner: owner, RunnerID: ai.RunnerID(id), Now: d.c.now(),
	})
	if err == nil {
		d.c.Logger.InfoContext(ctx, "device approved", "runner", r.ID, "device", r.Device.String())
	}
	return r, err
}

// Deny refuses the device that waits under a code. It returns [ErrNoPairing].
func (d *Devices) Deny(ctx context.Context, userCode string) error {
	return d.c.devs.Deny(ctx, normalCode(userCode), d.c.now())
}

// List returns an owner's devices, revoked ones too, the oldest first. An empty
// owner lists everybody's.
func (d *Devices) List(ctx context.Context, owner ai.Owner) ([]Runner, error) {
	return d.c.devs.Runners(ctx, RunnerQuery{Owner: owner})
}

// Revoke ends a device's rights from this moment (MUST REVOCATION_IMMEDIATE).
// Jobs it holds come back when their leases lapse. It returns [ErrNoRunner].
func (d *Devices) Revoke(ctx context.Context, id ai.RunnerID) (Runner, error) {
	r, err := d.c.devs.Revoke(ctx, id, d.c.now())
	if err == nil {
		d.c.Logger.InfoContext(ctx, "device revoked", "runner", id)
	}
	return r, err
}

// codeSymbols are the symbols of a user code: none that is read as another.
const codeSymbols = "ABCDEFGHJKMNPQRTWXYZ2346789"

const (
	codeLength = 8
	codeHalf   = 4
)

// newUserCode draws a code from random bytes, throwing away those that would
// make some symbols likelier than others.
func newUserCode(read func([]byte) error) (string, error) {
	const fair = 256 - 256%len(codeSymbols)
	var code []byte
	var b [16]byte
	for len(code) < codeLength {
		if err := read(b[:]); err != nil {
			return "", err
		}
		for _, x := range b {
			if int(x) < fair && len(code) < codeLength {
				code = append(code, codeSymbols[int(x)%len(codeSymbols)])
			}
		}
	}
	return string(code[:codeHalf]) + "-" + string(code[codeHalf:]), nil
}

// normalCode is a code as it is stored: upper case, without anything that people
// put between symbols, with the dash in the middle.
func normalCode(typed string) string {
	code := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, typed)
	if len(code) != codeLength {
		return code
	}
	return code[:codeHalf] + "-" + code[codeHalf:]
}
