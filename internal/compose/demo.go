package compose

import (
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// Demo is what a demo run showed, party by party. Its JSON form is the output
// of allod demo --json.
type Demo struct {
	// Site is the party that asks.
	Site SiteView `json:"site"`
	// Relay is whoever carries: it sees this and no more.
	Relay RelayView `json:"relay"`
	// Stranger holds a key of its own and the sealed question.
	Stranger RefusedView `json:"stranger"`
	// WidenedStub is the device again, after the relay has changed who may run
	// the job.
	WidenedStub RefusedView `json:"widenedStub"`
	// Device is the party that was asked.
	Device DeviceView `json:"device"`
	// Steps are the steps in order with their wall-clock time.
	Steps []Step `json:"steps"`
}

// SiteView is what the site sees.
type SiteView struct {
	KeyID    string `json:"keyId"`
	Question string `json:"question"`
}

// RelayView is what a relay sees of a job: the stub, the labels and the sealed
// bytes.
type RelayView struct {
	JobID      string `json:"jobId"`
	Kind       string `json:"kind"`
	Owner      string `json:"owner"`
	Audience   string `json:"audience"`
	SizeClass  string `json:"sizeClass"`
	From       string `json:"from"`
	To         string `json:"to"`
	Ciphertext string `json:"ciphertext"`
	// QuestionFound is whether the question stands anywhere in what the relay
	// holds.
	QuestionFound bool `json:"questionFound"`
}

// RefusedView is how an attempt ended: the name of the refusal, or "" if it
// succeeded, which it must not.
type RefusedView struct {
	Refusal string `json:"refusal"`
	Meaning string `json:"meaning"`
}

// DeviceView is what the device sees.
type DeviceView struct {
	KeyID    string `json:"keyId"`
	Question string `json:"question"`
}

// Step is one step of the demo.
type Step struct {
	Name string `json:"name"`
	// Ms is the step's wall-clock time in milliseconds.
	Ms float64 `json:"ms"`
}

// SealedQuestion seals a question from a site to a device, lets a stranger and a
// dishonest relay try, and opens it. Keys are made from rand and kept in key
// files below dir, which must exist. It returns a refusal of one of the
// packages it shows.
func SealedQuestion(rand io.Reader, now func() time.Time, dir, question string) (Demo, error) {
	d := &demo{rand: rand, now: now, dir: dir}
	d.report.Site.Question = question
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"make keys and key files", d.makeKeys},
		{"seal the question", d.seal},
		{"carry it", d.carry},
		{"try to open it with a stranger's key", d.stranger},
		{"widen it on the way and open it", d.widen},
		{"open it with the device's key", d.open},
	} {
		start := now()
		if err := step.run(); err != nil {
			return Demo{}, err
		}
		ms := float64(now().Sub(start).Microseconds()) / 1000
		d.report.Steps = append(d.report.Steps, Step{step.name, ms})
	}
	return d.report, nil
}

// demo is the state between the steps.
type demo struct {
	rand io.Reader
	now  func() time.Time
	dir  string

	site     key.SiteKeys
	device   key.DeviceKeys
	outsider key.DeviceKeys

	stub    ai.Stub
	payload []byte
	sealed  ai.SealedEnvelope
	report  Demo
}

func (d *demo) makeKeys() (err error) {
	if d.site, err = makeKeys[key.SiteRole](d, "site-keys.json"); err != nil {
		return err
	}
	if d.device, err = makeKeys[key.DeviceRole](d, "device-keys.json"); err != nil {
		return err
	}
	if d.outsider, err = makeKeys[key.DeviceRole](d, "stranger-keys.json"); err != nil {
		return err
	}
	d.report.Site.KeyID = d.site.Identity().String()
	d.report.Device.KeyID = d.device.Identity().String()
	return nil
}

// makeKeys makes keys, writes their file and reads it back, as a party does at
// its first start. Where the system cannot protect the file, the keys stay in
// memory.
func makeKeys[R key.Role](d *demo, name string) (key.Keys[R], error) {
	k, err := key.NewKeys[R](d.rand, d.now())
	if err != nil {
		return k, err
	}
	path := filepath.Join(d.dir, name)
	if err := keyfile.Create(path, k); err != nil {
		if refusal.From(err).Kind() == keyfile.ErrPlatform {
			return k, nil
		}
		return k, err
	}
	defer os.Remove(path)
	return keyfile.Load[R](path)
}

func (d *demo) seal() error {
	payload := ai.Generate{Prompt: d.report.Site.Question}
	var err error
	if d.payload, err = protocol.Latest().WritePayload(payload); err != nil {
		return err
	}
	deadline := ai.MillisOf(d.now().Add(envelope.MaxAge))
	d.stub = ai.Stub{
		ID: "demo-1", Kind: payload.Kind(), Owner: "alice", Site: ai.KeyID(d.site.Identity().String()),
		Audience: ai.AudienceSelf, SizeClass: ai.SizeClassOf(payload.TextUnits()), DeadlineAt: deadline,
	}
	reach := envelope.ReachOf(d.stub)
	d.sealed, err = envelope.Seal(d.rand, d.site.Signer(), d.device.Identity(), envelope.Letter{
		JobID: d.stub.ID, Direction: ai.DirectionPayload, DeadlineAt: deadline,
		Plaintext: string(d.payload), Reach: &reach,
	})
	return err
}

// carry is everything a relay holds of the job, as it would be on the wire.
func (d *demo) carry() error {
	codec := protocol.Latest()
	stub, err := codec.Stub.Write(d.stub)
	if err != nil {
		return err
	}
	sealed, err := codec.FetchResponse.Write(ai.FetchResponse{Envelope: d.sealed})
	if err != nil {
		return err
	}
	d.report.Relay = RelayView{
		JobID: string(d.stub.ID), Kind: string(d.stub.Kind), Owner: string(d.stub.Owner),
		Audience: string(d.stub.Audience), SizeClass: string(d.stub.SizeClass),
		From: string(d.sealed.SenderKeyID), To: string(d.sealed.RecipientKeyID),
		Ciphertext: d.sealed.Ciphertext,
		// The payload holds the question in words enough that it cannot stand
		// in random bytes by chance, which a question of two letters can.
		QuestionFound: holds(d.payload, stub, sealed),
	}
	return nil
}

func (d *demo) stranger() error {
	_, err := d.openWith(d.outsider.Opener())
	d.report.Stranger = refused(err)
	return nil
}

func (d *demo) widen() error {
	opened, err := d.openWith(d.device.Opener())
	if err != nil {
		return err
	}
	widened := d.stub
	widened.Audience = ai.AudiencePublic
	d.report.WidenedStub = refused(opened.Reach.Check(widened))
	return nil
}

func (d *demo) open() error {
	opened, err := d.openWith(d.device.Opener())
	if err != nil {
		return err
	}
	if err := opened.Reach.Check(d.stub); err != nil {
		return err
	}
	payload, err := protocol.Latest().ReadPayload(d.stub.Kind, []byte(opened.Plaintext))
	if err != nil {
		return err
	}
	d.report.Device.Question = payload.(ai.Generate).Prompt
	return nil
}

func (d *demo) openWith(opener key.Opener) (envelope.Opened, error) {
	return envelope.Open(opener, d.site.Identity().Signing(), d.sealed, envelope.Context{
		JobID: d.stub.ID, Direction: ai.DirectionPayload,
		Sender: d.site.Identity().Fingerprint(), Recipient: d.device.Identity().Fingerprint(),
	})
}

func refused(err error) RefusedView {
	if err == nil {
		return RefusedView{}
	}
	k := refusal.From(err).Kind()
	return RefusedView{Refusal: k.Name(), Meaning: k.Meaning()}
}
