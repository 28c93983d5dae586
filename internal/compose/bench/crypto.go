package bench

import (
	"context"
	"crypto/ecdh"
	"io"
	"sync/atomic"
	"time"

	"github.com/allodhq/allod/key"
)

// What the cryptography of one job is, at both ends together. A claim for four
// jobs is signed once, so a quarter of it is a job's. Besides it the device signs
// the requests for the payload and for the result, and each of the two envelopes
// is signed; all of these are verified, and the payload at rest as well. Five
// times a box is sealed or opened: the payload at rest is opened, both envelopes
// are sealed and opened; each sealing makes a key.
const (
	signaturesPerJob      = 4.25
	verificationsPerJob   = 5.25
	multiplicationsPerJob = 5
	generationsPerJob     = 2
)

// Costs are what the primitives take, each of one processor's time while all
// processors do the same.
type Costs struct {
	// Signature and Verification are Ed25519 over half a kilobyte.
	Signature    time.Duration
	Verification time.Duration
	// Multiplication is an X25519 agreement, and Generation a new X25519 key.
	Multiplication time.Duration
	Generation     time.Duration

	share float64 // see [Setup]
}

func (c Costs) mean(d Costs) Costs {
	return Costs{
		Signature: (c.Signature + d.Signature) / 2, Verification: (c.Verification + d.Verification) / 2,
		Multiplication: (c.Multiplication + d.Multiplication) / 2, Generation: (c.Generation + d.Generation) / 2,
		share: (c.share + d.share) / 2,
	}
}

// perJob is one job's cryptography.
func (c Costs) perJob() time.Duration {
	return time.Duration(signaturesPerJob*float64(c.Signature) + verificationsPerJob*float64(c.Verification) +
		multiplicationsPerJob*float64(c.Multiplication) + generationsPerJob*float64(c.Generation))
}

// limit is how many jobs a second so many processors carry at most.
func (c Costs) limit(cores int) float64 { return float64(cores) / c.perJob().Seconds() }

const (
	// cryptoRounds and cryptoSlice divide the time for each primitive, so that a
	// disturbance of a moment meets all of them and not one.
	cryptoRounds = 5
	cryptoSlice  = 50 * time.Millisecond
	// signedSize is about what the contract signs: five lines, or an envelope's
	// body around a short text.
	signedSize = 512
)

// crypto measures the primitives on all processors.
func (b *bench) crypto(ctx context.Context) (Costs, error) {
	b.Progress("measuring cryptography on all processors")
	signing, err := key.NewSigning(b.Rand)
	if err != nil {
		return Costs{}, err
	}
	message := make([]byte, signedSize)
	signature, err := signing.Sign(message)
	if err != nil {
		return Costs{}, err
	}
	public := signing.Public()
	var secrets [2][32]byte
	var pairs [2]*ecdh.PrivateKey
	for i := range secrets {
		if _, err := io.ReadFull(b.Rand, secrets[i][:]); err != nil {
			return Costs{}, err
		}
		if pairs[i], err = ecdh.X25519().NewPrivateKey(secrets[i][:]); err != nil {
			return Costs{}, err
		}
	}
	other := pairs[1].PublicKey()
	var c Costs
	primitives := []struct {
		cost *time.Duration
		once func() error
	}{
		{&c.Signature, func() error { _, err := signing.Sign(message); return err }},
		{&c.Verification, func() error {
			if !public.Verify(message, signature) {
				return ErrAnswer.With("A signature did not verify.")
			}
			return nil
		}},
		{&c.Multiplication, func() error { _, err := pairs[0].ECDH(other); return err }},
		{&c.Generation, func() error {
			k, err := key.NewSealing(b.Rand)
			_ = k.Public()
			return err
		}},
	}
	begun, used := b.Clock(), processorTime()
	for range cryptoRounds {
		for _, p := range primitives {
			cost, err := b.cost(ctx, cryptoSlice, p.once)
			if err != nil {
				return Costs{}, err
			}
			*p.cost += cost / cryptoRounds
		}
	}
	c.share = float64(processorTime()-used) / float64(b.Clock().Sub(begun)) / float64(b.report.Setup.Cores)
	return c, nil
}

// cost repeats what once does on all processors for a while, and returns how
// much of one processor's time it takes.
func (b *bench) cost(ctx context.Context, during time.Duration, once func() error) (time.Duration, error) {
	const batch = 16 // looking at the clock costs too
	var total atomic.Int64
	begun := b.Clock()
	err := together(ctx, b.report.Setup.Cores, func(ctx context.Context, _ int) error {
		for b.Clock().Sub(begun) < during && ctx.Err() == nil {
			for range batch {
				if err := once(); err != nil {
					return err
				}
			}
			total.Add(batch)
		}
		return ctx.Err()
	})
	took := b.Clock().Sub(begun)
	if err != nil {
		return 0, err
	}
	return took * time.Duration(b.report.Setup.Cores) / time.Duration(max(total.Load(), 1)), nil
}
