package site

import (
	"context"
	"io"
	"slices"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/succession"
)

// ErrSealed refuses material that none of the site's keys opens.
var ErrSealed = refusal.NewKind("site-key-lost", 500,
	"What is stored was sealed to a key that the site does not have any more.",
	"Add the key file it was sealed to, or restore it from a backup. Without it the content is lost; see docs/site-keys.md.")

// vault seals and opens with the site's own keys. Nothing else in the package
// sees them.
type vault struct {
	current key.SiteKeys
	id      ai.KeyID // of current, as stubs and envelopes of this site carry it
	all     map[ai.KeyID]key.SiteKeys
	// succeeds are the keys before the current one, the oldest first, each with its
	// word for the next.
	succeeds []ai.Succession
	rand     io.Reader
}

func openVault(ctx context.Context, c Config) (vault, error) {
	v := vault{current: c.Keys[0], id: idOf(c.Keys[0].Identity().Fingerprint()), all: map[ai.KeyID]key.SiteKeys{}, rand: c.Rand}
	for _, k := range c.Keys {
		v.all[idOf(k.Identity().Fingerprint())] = k
	}
	var err error
	if v.succeeds, err = successions(c.Keys); err != nil {
		return vault{}, err
	}
	err = c.Store.Keys().Use(ctx, v.current.Identity(), ai.MillisOf(c.Clock()))
	return v, err
}

// successions has each of the keys behind the first sign that the one before it in
// the list comes after it. Of more than [ai.MaxSuccessions] the oldest are left
// out; a key that stands twice counts where it stands first.
func successions(keys []key.SiteKeys) (chain []ai.Succession, err error) {
	next := keys[0].Identity().Fingerprint()
	seen := map[key.Fingerprint]bool{next: true}
	for _, k := range keys[1:] {
		id := k.Identity().Fingerprint()
		if seen[id] || len(chain) == ai.MaxSuccessions {
			continue
		}
		signature, err := k.Signer().Sign(succession.Statement(id, next))
		if err != nil {
			return nil, err
		}
		chain = append(chain, ai.Succession{Identity: ai.PublicIdentityOf(k.Identity()), Signature: signature.String()})
		seen[id], next = true, id
	}
	slices.Reverse(chain)
	return chain, nil
}

func idOf(f key.Fingerprint) ai.KeyID { return ai.KeyID(f.String()) }

// rest seals a payload by the site to itself, as it is stored.
func (v vault) rest(id ai.JobID, p ai.Payload, deadline ai.Millis) (ai.SealedEnvelope, error) {
	text, err := protocol.Latest().WritePayload(p)
	if err != nil {
		return ai.SealedEnvelope{}, err
	}
	return envelope.Seal(v.rand, v.current.Signer(), v.current.Identity(), envelope.Letter{
		JobID: id, Direction: ai.DirectionPayload, DeadlineAt: deadline, Plaintext: string(text),
	})
}

// payload opens what rest sealed, with whichever of the site's keys it was
// sealed to. It returns [ErrSealed].
func (v vault) payload(j Job) (string, error) {
	k, ok := v.all[j.Payload.RecipientKeyID]
	if !ok {
		return "", ErrSealed
	}
	own := k.Identity().Fingerprint()
	opened, err := envelope.Open(k.Opener(), k.Identity().Signing(), j.Payload, envelope.Context{
		JobID: j.ID, Sender: own, Recipient: own, Direction: ai.DirectionPayload,
	})
	if err != nil {
		return "", ErrSealed.Because(err)
	}
	return opened.Plaintext, nil
}

// reseal seals a stored payload to the device that holds the job, with what the
// job may reach inside the signature.
func (v vault) reseal(j Job, to key.Device, deadline ai.Millis) (ai.SealedEnvelope, error) {
	text, err := v.payload(j)
	if err != nil {
		return ai.SealedEnvelope{}, err
	}
	return envelope.Seal(v.rand, v.current.Signer(), to, envelope.Letter{
		JobID: j.ID, Direction: ai.DirectionPayload, DeadlineAt: deadline, Plaintext: text,
		Reach: &envelope.Reach{Kind: j.Kind, Audience: j.Audience, Owner: j.Owner, Site: v.id},
	})
}

// outcome opens a device's result and reads it in a version of the protocol. It
// returns what the device signed beside it as well, envelope's errors and the codec's.
func (v vault) outcome(codec ai.Codec, id ai.JobID, from key.Device, env ai.SealedEnvelope) (ai.SealedOutcome, envelope.Opened, error) {
	k, ok := v.all[env.RecipientKeyID]
	if !ok {
		return ai.SealedOutcome{}, envelope.Opened{}, envelope.ErrNotForUs
	}
	opened, err := envelope.Open(k.Opener(), from.Signing(), env, envelope.Context{
		JobID: id, Sender: from.Fingerprint(), Recipient: k.Identity().Fingerprint(), Direction: ai.DirectionResult,
	})
	if err != nil {
		return ai.SealedOutcome{}, envelope.Opened{}, err
	}
	o, err := codec.Outcome.Read([]byte(opened.Plaintext))
	return o, opened, err
}
