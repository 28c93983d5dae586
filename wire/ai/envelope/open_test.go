package envelope_test

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
)

// TestNoChangeOpens changes each bit of the ciphertext and each character of
// each label.
func TestNoChangeOpens(t *testing.T) {
	w := newWorld(t)
	good := w.envelope(w.parts().sealed(t))
	if opened, err := w.open(good); err != nil || opened.Plaintext != plaintext || opened.Reach != nil {
		t.Fatalf("the good envelope opens as %v, %v", opened, err)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(good.Ciphertext)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, want error, change func(env *ai.SealedEnvelope)) {
		t.Helper()
		env := good
		change(&env)
		opened, err := w.open(env)
		mustRefuse(t, what, opened, err, want)
	}
	box := func(what string, changed []byte) {
		t.Helper()
		try(what, envelope.ErrUnopenable, func(env *ai.SealedEnvelope) {
			env.Ciphertext = base64.RawURLEncoding.EncodeToString(changed)
		})
	}
	step := 1
	if raceEnabled {
		step = 7 // a prime, so that every bit of a byte gets its turn
	}
	for bit := 0; bit < len(sealed)*8; bit += step {
		changed := slices.Clone(sealed)
		changed[bit/8] ^= 1 << (bit % 8)
		box(fmt.Sprintf("bit %d of byte %d", bit%8, bit/8), changed)
	}
	for i := range sealed[:48] { // ephemeral key and authenticator, all values
		for v := range 256 / step {
			changed := slices.Clone(sealed)
			if changed[i] += byte(v + 1); changed[i] != sealed[i] {
				box(fmt.Sprintf("byte %d", i), changed)
			}
		}
	}
	for n := range sealed {
		if n%step == 0 || n < 64 {
			box(fmt.Sprintf("%d bytes", n), sealed[:n])
		}
	}
	box("a byte more", append(slices.Clone(sealed), 0))
	box("twice", append(slices.Clone(sealed), sealed...))

	// One ciphertext has one text.
	for what, text := range map[string]string{
		"padded":                   good.Ciphertext + "=",
		"padded twice":             good.Ciphertext + "==",
		"a line break at the end":  good.Ciphertext + "\n",
		"a line break inside":      good.Ciphertext[:10] + "\r\n" + good.Ciphertext[10:],
		"white space":              " " + good.Ciphertext,
		"a character less":         good.Ciphertext[1:],
		"empty":                    "",
		"the standard alphabet":    strings.NewReplacer("-", "+", "_", "/").Replace(good.Ciphertext),
		"a stray bit at the end":   strayBit(t, good.Ciphertext),
		"a character of no base64": "!" + good.Ciphertext[1:],
	} {
		if text == good.Ciphertext {
			t.Fatalf("%s: the text is the good one, so the test shows nothing", what)
		}
		try(what, envelope.ErrUnopenable, func(env *ai.SealedEnvelope) { env.Ciphertext = text })
	}

	changes := func(label string, set func(env *ai.SealedEnvelope, text string)) {
		for i := range label {
			for _, c := range []byte{label[i] ^ 1, label[i] ^ 0x20, 'x', 0, '-'} {
				if c == label[i] {
					continue
				}
				changed := []byte(label)
				changed[i] = c
				try("label "+string(changed), envelope.ErrNotForUs, func(env *ai.SealedEnvelope) { set(env, string(changed)) })
			}
			try("label without a character", envelope.ErrNotForUs, func(env *ai.SealedEnvelope) { set(env, label[:i]+label[i+1:]) })
		}
		for _, text := range []string{"", label + " ", label + "\x00", strings.ToLower(label) + "x"} {
			try("label "+text, envelope.ErrNotForUs, func(env *ai.SealedEnvelope) { set(env, text) })
		}
	}
	changes(string(good.SenderKeyID), func(env *ai.SealedEnvelope, text string) { env.SenderKeyID = ai.KeyID(text) })
	changes(string(good.RecipientKeyID), func(env *ai.SealedEnvelope, text string) { env.RecipientKeyID = ai.KeyID(text) })
	changes(string(good.Direction), func(env *ai.SealedEnvelope, text string) { env.Direction = ai.Direction(text) })
	try("the other direction", envelope.ErrNotForUs, func(env *ai.SealedEnvelope) { env.Direction = ai.DirectionResult })
	for bit := range 64 {
		try(fmt.Sprintf("bit %d of the deadline", bit), envelope.ErrContext, func(env *ai.SealedEnvelope) { env.DeadlineAt ^= 1 << bit })
	}
	try("no deadline", envelope.ErrContext, func(env *ai.SealedEnvelope) { env.DeadlineAt = 0 })
}

// strayBit sets a bit of the last character that stands for no byte.
func strayBit(t *testing.T, text string) string {
	t.Helper()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	if len(text)%4 == 0 {
		t.Fatal("every bit of this text stands for one, so the test shows nothing")
	}
	last := strings.IndexByte(alphabet, text[len(text)-1])
	return text[:len(text)-1] + alphabet[last|1:last|1+1]
}

// TestEveryWordOfTheContextIsCompared opens with a want that differs, while the
// labels follow the want as a lying router's would.
func TestEveryWordOfTheContextIsCompared(t *testing.T) {
	w := newWorld(t)
	good := w.envelope(w.parts().sealed(t))
	other := w.mallory.Identity()
	for what, c := range map[string]struct {
		change func(env *ai.SealedEnvelope, want *envelope.Context)
		sender key.SigningPublic
		opener key.Opener
		want   error
	}{
		"another job":      {change: func(_ *ai.SealedEnvelope, want *envelope.Context) { want.JobID = "job-2" }, want: envelope.ErrContext},
		"no job":           {change: func(_ *ai.SealedEnvelope, want *envelope.Context) { want.JobID = "" }, want: envelope.ErrContext},
		"the job's prefix": {change: func(_ *ai.SealedEnvelope, want *envelope.Context) { want.JobID = "job-" }, want: envelope.ErrContext},
		"another direction": {change: func(env *ai.SealedEnvelope, want *envelope.Context) {
			env.Direction, want.Direction = "result", "result"
		}, want: envelope.ErrContext},
		"another deadline": {change: func(env *ai.SealedEnvelope, _ *envelope.Context) { env.DeadlineAt++ }, want: envelope.ErrContext},
		"another sender": {change: func(env *ai.SealedEnvelope, want *envelope.Context) {
			env.SenderKeyID, want.Sender = ai.KeyID(other.String()), other.Fingerprint()
		}, want: envelope.ErrContext},
		"another sender and its key": {change: func(env *ai.SealedEnvelope, want *envelope.Context) {
			env.SenderKeyID, want.Sender = ai.KeyID(other.String()), other.Fingerprint()
		}, sender: other.Signing(), want: envelope.ErrSignature},
		"another recipient": {change: func(env *ai.SealedEnvelope, want *envelope.Context) {
			env.RecipientKeyID, want.Recipient = ai.KeyID(other.String()), other.Fingerprint()
		}, want: envelope.ErrContext},
		"nobody as sender": {change: func(env *ai.SealedEnvelope, want *envelope.Context) {
			env.SenderKeyID, want.Sender = "", key.Fingerprint{}
		}, want: envelope.ErrContext},
		"only the pinned key differs": {change: func(*ai.SealedEnvelope, *envelope.Context) {}, sender: other.Signing(), want: envelope.ErrSignature},
		"no pinned key":               {change: func(*ai.SealedEnvelope, *envelope.Context) {}, sender: key.SigningPublic{}, want: envelope.ErrSignature},
		"another's opener":            {change: func(*ai.SealedEnvelope, *envelope.Context) {}, opener: w.mallory.Opener(), want: envelope.ErrUnopenable},
		"no opener's key":             {change: func(*ai.SealedEnvelope, *envelope.Context) {}, opener: key.Sealing{}, want: key.ErrNoKey},
	} {
		env, want := good, w.context()
		c.change(&env, &want)
		opener, sender := w.device.Opener(), w.site.Identity().Signing()
		if c.opener != nil {
			opener = c.opener
		}
		if c.sender != (key.SigningPublic{}) || what == "no pinned key" {
			sender = c.sender
		}
		opened, err := envelope.Open(opener, sender, env, want)
		mustRefuse(t, what, opened, err, c.want)
	}
}

// TestNothingExpected opens an envelope whose signed body names no job and no
// deadline, for a caller that expects neither: what is absent on both sides is
// no agreement.
func TestNothingExpected(t *testing.T) {
	w := newWorld(t)
	p := w.parts()
	p.members = append(p.members[2:4:4], p.members[5:]...) // without v, jobId and deadlineAt
	env, want := w.envelope(p.sealed(t)), w.context()
	env.DeadlineAt, want.JobID = 0, ""
	opened, err := envelope.Open(w.device.Opener(), w.site.Identity().Signing(), env, want)
	mustRefuse(t, "nothing expected", opened, err, envelope.ErrContext)
}

// TestPinnedKeyOfAnotherName seals as mallory under the site's name and opens
// with mallory's key pinned for it. No caller should do so; if one does, the
// name and the key must not be taken together.
func TestPinnedKeyOfAnotherName(t *testing.T) {
	w := newWorld(t)
	p := w.parts()
	p.signer = w.mallory.Signer()
	opened, err := envelope.Open(w.device.Opener(), w.mallory.Identity().Signing(), w.envelope(p.sealed(t)), w.context())
	mustRefuse(t, "another's key under this name", opened, err, envelope.ErrContext)
}

// TestOrderOfJudgements puts every set of faults into one envelope. The first
// by the order of the package decides.
func TestOrderOfJudgements(t *testing.T) {
	w := newWorld(t)
	order := []struct {
		name string
		err  error
	}{
		{"labels", envelope.ErrNotForUs}, {"box", envelope.ErrUnopenable}, {"form", envelope.ErrMalformed},
		{"signature", envelope.ErrSignature}, {"body", envelope.ErrMalformed}, {"context", envelope.ErrContext},
		{"plaintext", envelope.ErrMalformed},
	}
	for set := range 1 << len(order) {
		has := func(name string) bool {
			i := slices.IndexFunc(order, func(o struct {
				name string
				err  error
			}) bool {
				return o.name == name
			})
			return set&(1<<i) != 0
		}
		p := w.parts()
		if has("plaintext") {
			p.members = p.members[:len(p.members)-1]
		}
		if has("context") {
			p.members[1] = `"jobId":"job-2"`
		}
		if has("body") {
			p.members = append(p.members, `"stub":{}`)
		}
		if has("signature") {
			p.signer = w.mallory.Signer()
		}
		if has("form") {
			p.inner = func(body, signature string) string { return `{"body":"` + body + `","sig":"` + signature + `"}` }
		}
		env := w.envelope(p.sealed(t))
		if has("box") {
			env.Ciphertext = "A" + env.Ciphertext[1:]
			if env.Ciphertext == p.sealed(t) {
				t.Fatal("the box was not changed, so the test shows nothing")
			}
		}
		if has("labels") {
			env.SenderKeyID = ai.KeyID(w.mallory.Identity().String())
		}
		var want error
		what := "faults:"
		for i, o := range order {
			if set&(1<<i) != 0 {
				what += " " + o.name
				if want == nil {
					want = o.err
				}
			}
		}
		opened, err := w.open(env)
		if want == nil {
			if err != nil || opened.Plaintext != plaintext {
				t.Errorf("without a fault: %v, %v", opened, err)
			}
			continue
		}
		mustRefuse(t, what, opened, err, want)
	}
}

// TestFormOfTheInside has what the sealed text may and may not look like.
func TestFormOfTheInside(t *testing.T) {
	w := newWorld(t)
	for what, c := range map[string]struct {
		inner func(body, signature string) string
		want  error
	}{
		"other members and spaces": {func(b, s string) string {
			return " {\"x\": [1, {\"body\":2}], \"signature\" : \"" + s + "\",\n\"body\":\"" + b + "\"} "
		}, nil},
		"an escaped name": {func(b, s string) string { return `{"\u0062ody":"` + b + `","signature":"` + s + `"}` }, nil},
		"the body twice":  {func(b, s string) string { return `{"body":"` + b + `","body":"` + b + `","signature":"` + s + `"}` }, envelope.ErrMalformed},
		"the signature twice": {func(b, s string) string {
			return `{"body":"` + b + `","signature":"` + s + `","signature":"` + s + `"}`
		}, envelope.ErrMalformed},
		"names in another case":    {func(b, s string) string { return `{"Body":"` + b + `","Signature":"` + s + `"}` }, envelope.ErrMalformed},
		"no body":                  {func(b, s string) string { return `{"signature":"` + s + `"}` }, envelope.ErrMalformed},
		"no signature":             {func(b, s string) string { return `{"body":"` + b + `"}` }, envelope.ErrMalformed},
		"a body of another type":   {func(b, s string) string { return `{"body":["` + b + `"],"signature":"` + s + `"}` }, envelope.ErrMalformed},
		"a signature of null":      {func(b, s string) string { return `{"body":"` + b + `","signature":null}` }, envelope.ErrMalformed},
		"a list":                   {func(b, s string) string { return `["` + b + `","` + s + `"]` }, envelope.ErrMalformed},
		"nothing":                  {func(b, s string) string { return "" }, envelope.ErrMalformed},
		"text after it":            {func(b, s string) string { return `{"body":"` + b + `","signature":"` + s + `"}{}` }, envelope.ErrMalformed},
		"bytes that are not UTF-8": {func(b, s string) string { return `{"x":"` + "\xff" + `","body":"` + b + `","signature":"` + s + `"}` }, envelope.ErrMalformed},
		"too deep": {func(b, s string) string {
			return `{"x":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `,"body":"` + b + `","signature":"` + s + `"}`
		}, envelope.ErrMalformed},
		"as deep as allowed": {func(b, s string) string {
			return `{"x":` + strings.Repeat("[", 7) + strings.Repeat("]", 7) + `,"body":"` + b + `","signature":"` + s + `"}`
		}, nil},
		"too many values": {func(b, s string) string {
			return `{"x":[` + strings.Repeat("0,", 1020) + `0],"body":"` + b + `","signature":"` + s + `"}`
		}, envelope.ErrMalformed},
		"as many as allowed": {func(b, s string) string {
			return `{"x":[` + strings.Repeat("0,", 1019) + `0],"body":"` + b + `","signature":"` + s + `"}`
		}, nil},
		"a body with padding":        {func(b, s string) string { return `{"body":"` + b + `=","signature":"` + s + `"}` }, envelope.ErrMalformed},
		"a body with a line break":   {func(b, s string) string { return `{"body":"` + b + `\n","signature":"` + s + `"}` }, envelope.ErrMalformed},
		"a body of no base64":        {func(b, s string) string { return `{"body":"*","signature":"` + s + `"}` }, envelope.ErrMalformed},
		"an empty body":              {func(b, s string) string { return `{"body":"","signature":"` + s + `"}` }, envelope.ErrSignature},
		"another body":               {func(b, s string) string { return `{"body":"e30","signature":"` + s + `"}` }, envelope.ErrSignature},
		"an empty signature":         {func(b, s string) string { return `{"body":"` + b + `","signature":""}` }, envelope.ErrSignature},
		"a signature of no base64":   {func(b, s string) string { return `{"body":"` + b + `","signature":"*` + s[1:] + `"}` }, envelope.ErrSignature},
		"a signature with padding":   {func(b, s string) string { return `{"body":"` + b + `","signature":"` + s + `=="}` }, envelope.ErrSignature},
		"a short signature":          {func(b, s string) string { return `{"body":"` + b + `","signature":"` + s[:43] + `"}` }, envelope.ErrSignature},
		"both texts are none":        {func(b, s string) string { return `{"body":"*","signature":"*"}` }, envelope.ErrMalformed},
		"a signature of other bytes": {func(b, s string) string { return `{"body":"` + b + `","signature":"` + strings.Repeat("A", 86) + `"}` }, envelope.ErrSignature},
	} {
		p := w.parts()
		p.inner = c.inner
		opened, err := w.open(w.envelope(p.sealed(t)))
		if c.want != nil {
			mustRefuse(t, what, opened, err, c.want)
		} else if err != nil || opened.Plaintext != plaintext {
			t.Errorf("%s: %v, %v", what, opened, err)
		}
	}
}

// TestFormOfTheSignedBody has what a sender may sign.
func TestFormOfTheSignedBody(t *testing.T) {
	w := newWorld(t)
	at := func(i int, text string) []string {
		m := w.members()
		m[i] = text
		return m
	}
	without := func(i int) []string { return slices.Delete(w.members(), i, i+1) }
	more := func(text string) []string { return append(w.members(), text) }
	cases := map[string]struct {
		members []string
		want    error
	}{
		"the good one":                  {w.members(), nil},
		"another order":                 {slices.Concat(w.members()[3:], w.members()[:3]), nil},
		"without its version":           {without(0), nil},
		"another version":               {at(0, `"v":2`), nil},
		"an unknown member":             {more(`"x":{"y":[1]}`), nil},
		"a member twice":                {more(`"jobId":"job-1"`), envelope.ErrMalformed},
		"an unknown member twice":       {more(`"x":1,"x":1`), envelope.ErrMalformed},
		"text after it":                 {more(`"x":1}{"x":1`), envelope.ErrMalformed},
		"no JSON":                       {more(`x`), envelope.ErrMalformed},
		"bytes that are not UTF-8":      {at(6, "\"plaintext\":\"\xff\""), envelope.ErrMalformed},
		"half a surrogate":              {at(6, `"plaintext":"\ud800"`), envelope.ErrMalformed},
		"too deep":                      {more(`"x":` + strings.Repeat("[", 8) + strings.Repeat("]", 8)), envelope.ErrMalformed},
		"too many values":               {more(`"x":[` + strings.Repeat("0,", 1020) + `0]`), envelope.ErrMalformed},
		"no plaintext":                  {without(6), envelope.ErrMalformed},
		"a plaintext of another type":   {at(6, `"plaintext":{}`), envelope.ErrMalformed},
		"a plaintext of null":           {at(6, `"plaintext":null`), envelope.ErrMalformed},
		"no plaintext for another job":  {slices.Concat(without(6)[2:], []string{`"jobId":"x"`}), envelope.ErrContext},
		"a deadline with an exponent":   {at(4, `"deadlineAt":1.75e12`), nil},
		"a deadline with a large E":     {at(4, `"deadlineAt":175E+10`), nil},
		"a deadline with a zero":        {at(4, `"deadlineAt":1750000000000.0`), nil},
		"a deadline a part later":       {at(4, `"deadlineAt":1750000000000.5`), envelope.ErrContext},
		"a deadline one later":          {at(4, `"deadlineAt":1750000000001`), envelope.ErrContext},
		"a deadline of text":            {at(4, `"deadlineAt":"1750000000000"`), envelope.ErrContext},
		"a deadline below zero":         {at(4, `"deadlineAt":-1750000000000`), envelope.ErrContext},
		"a deadline beyond all numbers": {at(4, `"deadlineAt":1e999`), envelope.ErrContext},
	}
	for i, name := range []string{"v", "jobId", "senderKeyId", "recipientKeyId", "deadlineAt", "direction"} {
		if i == 0 {
			continue
		}
		for what, text := range map[string]string{
			"null": `"` + name + `":null`, "a list": `"` + name + `":["job-1"]`, "empty": `"` + name + `":""`, "another": `"` + name + `":"x"`,
			"spelled otherwise": strings.Replace(w.members()[i], name, strings.ToUpper(name), 1),
			"with a space":      strings.TrimSuffix(w.members()[i], `"`) + ` "`,
		} {
			if what == "with a space" && name == "deadlineAt" {
				continue
			}
			cases[name+" "+what] = struct {
				members []string
				want    error
			}{at(i, text), envelope.ErrContext}
		}
		cases["without "+name] = struct {
			members []string
			want    error
		}{without(i), envelope.ErrContext}
	}
	for what, c := range cases {
		p := w.parts()
		p.members = c.members
		opened, err := w.open(w.envelope(p.sealed(t)))
		if c.want != nil {
			mustRefuse(t, what, opened, err, c.want)
		} else if err != nil || opened.Plaintext != plaintext {
			t.Errorf("%s: %v, %v", what, opened, err)
		}
	}
	// What is signed is no object.
	for _, text := range []string{"", "null", "[]", `"x"`, "1", "{}"} {
		p := w.parts()
		sig, err := w.site.Signer().Sign([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		p.inner = func(string, string) string {
			return `{"body":"` + base64.RawURLEncoding.EncodeToString([]byte(text)) + `","signature":"` + sig.String() + `"}`
		}
		want := error(envelope.ErrContext)
		if text == "" {
			want = envelope.ErrMalformed
		}
		opened, err := w.open(w.envelope(p.sealed(t)))
		mustRefuse(t, "signed "+text, opened, err, want)
	}
}

func TestReachIsReadBack(t *testing.T) {
	w := newWorld(t)
	stubs := map[string]struct {
		stub  string
		reach *envelope.Reach
	}{
		"the good one":       {stub, &reach},
		"another order":      {`"stub":{"site":"S","owner":"alice","audience":"named","kind":"llm.generate"}`, &reach},
		"null":               {`"stub":null`, nil},
		"a list":             {`"stub":[]`, nil},
		"a text":             {`"stub":"self"`, nil},
		"empty":              {`"stub":{}`, nil},
		"an unknown member":  {strings.Replace(stub, `"site"`, `"x":1,"site"`, 1), nil},
		"another's spelling": {strings.Replace(stub, `"site"`, `"Site"`, 1), nil},
		"a member twice":     {strings.Replace(stub, `"site":"S"`, `"site":"S","site":"S"`, 1), nil},
		"an unknown word":    {strings.Replace(stub, "named", "everyone", 1), nil},
		"an unknown kind":    {strings.Replace(stub, "llm.generate", "llm.embed", 1), nil},
		"an empty owner":     {strings.Replace(stub, "alice", "", 1), nil},
		"an empty site":      {strings.Replace(stub, `"site":"S"`, `"site":""`, 1), nil},
		"an owner of null":   {strings.Replace(stub, `"alice"`, "null", 1), nil},
		"an owner of number": {strings.Replace(stub, `"alice"`, "1", 1), nil},
	}
	for _, name := range []string{`"kind":"llm.generate",`, `"audience":"named",`, `"owner":"alice",`, `,"site":"S"`} {
		stubs["without "+name] = struct {
			stub  string
			reach *envelope.Reach
		}{strings.Replace(stub, name, "", 1), nil}
	}
	for what, c := range stubs {
		p := w.parts()
		p.members = append(w.members(), c.stub)
		opened, err := w.open(w.envelope(p.sealed(t)))
		if c.reach == nil {
			mustRefuse(t, what, opened, err, envelope.ErrMalformed)
			continue
		}
		if err != nil || opened.Plaintext != plaintext || opened.Reach == nil || *opened.Reach != *c.reach {
			t.Errorf("%s: %v, %v", what, opened, err)
		}
	}
	// Outside the signature it says nothing.
	p := w.parts()
	p.inner = func(body, signature string) string {
		return `{"body":"` + body + `","signature":"` + signature + `",` + stub + `}`
	}
	if opened, err := w.open(w.envelope(p.sealed(t))); err != nil || opened.Reach != nil {
		t.Errorf("a reach outside the signed body: %v, %v", opened, err)
	}
}

// TestUsageIsReadBack: what a run took is a note beside the result. Where it makes
// no sense it is no note, and the result opens all the same; with a payload it
// means nothing.
func TestUsageIsReadBack(t *testing.T) {
	w := newWorld(t)
	asResult := w.members()
	asResult[5] = `"direction":"result"`
	open := func(p parts, d ai.Direction) (envelope.Opened, error) {
		env, want := w.envelope(p.sealed(t)), w.context()
		env.Direction, want.Direction = d, d
		return envelope.Open(w.device.Opener(), w.site.Identity().Signing(), env, want)
	}
	const good = `{"promptTokens":3,"completionTokens":4}`
	for usage, want := range map[string]*ai.Usage{
		good: {Prompt: 3, Completion: 4},
		`{"completionTokens":4,"promptTokens":3}`:                             {Prompt: 3, Completion: 4},
		`{"promptTokens":0,"completionTokens":0}`:                             {},
		`{"promptTokens":9007199254740991,"completionTokens":1e3}`:            {Prompt: 1<<53 - 1, Completion: 1000},
		`{"promptTokens":3,"completionTokens":4,"totalTokens":7,"x":{"y":1}}`: {Prompt: 3, Completion: 4},
		`{}`: nil, `null`: nil, `7`: nil, `"x"`: nil, `true`: nil, `[]`: nil, `[3,4]`: nil, `[` + good + `]`: nil,
		`{"promptTokens":3}`: nil, `{"completionTokens":4}`: nil, `{"PromptTokens":3,"completionTokens":4}`: nil,
		`{"promptTokens":-1,"completionTokens":4}`:               nil,
		`{"promptTokens":3,"completionTokens":-4}`:               nil,
		`{"promptTokens":9007199254740992,"completionTokens":4}`: nil,
		`{"promptTokens":3,"completionTokens":9007199254740992}`: nil,
		`{"promptTokens":1e999,"completionTokens":4}`:            nil,
		`{"promptTokens":3.5,"completionTokens":4}`:              nil,
		`{"promptTokens":"3","completionTokens":4}`:              nil,
		`{"promptTokens":null,"completionTokens":4}`:             nil,
		`{"promptTokens":[3],"completionTokens":4}`:              nil,
		`{"promptTokens":{},"completionTokens":4}`:               nil,
		`{"prompt_tokens":3,"completion_tokens":4}`:              nil,
	} {
		p := w.parts()
		p.members = append(slices.Clone(asResult), `"usage":`+usage)
		opened, err := open(p, ai.DirectionResult)
		if err != nil || opened.Plaintext != plaintext || !reflect.DeepEqual(opened.Usage, want) {
			t.Errorf("%s: opened %q with %+v, %v", usage, opened.Plaintext, opened.Usage, err)
		}
		p.members = append(w.members(), `"usage":`+usage)
		if opened, err := open(p, ai.DirectionPayload); err != nil || opened.Plaintext != plaintext || opened.Usage != nil {
			t.Errorf("%s with a payload: opened %q with %+v, %v", usage, opened.Plaintext, opened.Usage, err)
		}
	}
	// What is no JSON at all is refused as ever, and so is a second one.
	for _, more := range []string{`"usage":`, `"usage":{"promptTokens":3,"promptTokens":3}`, `"usage":` + good + `,"usage":` + good} {
		p := w.parts()
		p.members = append(slices.Clone(asResult), more)
		opened, err := open(p, ai.DirectionResult)
		mustRefuse(t, more, opened, err, envelope.ErrMalformed)
	}
	// Outside the signature it says nothing.
	p := w.parts()
	p.members = asResult
	p.inner = func(body, signature string) string {
		return `{"body":"` + body + `","signature":"` + signature + `","usage":` + good + `}`
	}
	if opened, err := open(p, ai.DirectionResult); err != nil || opened.Usage != nil {
		t.Errorf("usage outside the signed body: %+v, %v", opened, err)
	}
}

// TestInsteadIsReadBack: what a run stood in for is a note as well.
func TestInsteadIsReadBack(t *testing.T) {
	w := newWorld(t)
	asResult := w.members()
	asResult[5] = `"direction":"result"`
	open := func(p parts, d ai.Direction) (envelope.Opened, error) {
		env, want := w.envelope(p.sealed(t)), w.context()
		env.Direction, want.Direction = d, d
		return envelope.Open(w.device.Opener(), w.site.Identity().Signing(), env, want)
	}
	const good = `{"model":"m","why":"backend-unreachable"}`
	is := func(model, why string) *ai.Instead { return &ai.Instead{Model: model, Why: why} }
	text := func(model, why string) string { return `{"model":"` + model + `","why":"` + why + `"}` }
	long, longer := strings.Repeat("x", 64), strings.Repeat("\U0001f600", 256) // two units each
	for instead, want := range map[string]*ai.Instead{
		good:                                    is("m", "backend-unreachable"),
		`{"why":"a-1","x":{"y":1},"model":"m"}`: is("m", "a-1"),
		text(longer, long):                      is(longer, long),
		text(longer+"x", long):                  nil,
		text("m", long+"x"):                     nil,
		text("", "why"):                         nil, text("m", ""): nil,
		text("m", "Why"): nil, text("m", "why?"): nil, text("m", "a b"): nil, text("m", "a\\nb"): nil, text("m", "\u00e9"): nil, text("m", "a_b"): nil,
		`{}`: nil, `null`: nil, `7`: nil, `"m"`: nil, `[]`: nil, `[` + good + `]`: nil, `{"model":"m"}`: nil, `{"why":"w"}`: nil,
		`{"Model":"m","why":"w"}`: nil, `{"model":1,"why":"w"}`: nil, `{"model":"m","why":null}`: nil, `{"model":"m","why":["w"]}`: nil,
	} {
		p := w.parts()
		p.members = append(slices.Clone(asResult), `"instead":`+instead)
		opened, err := open(p, ai.DirectionResult)
		if err != nil || opened.Plaintext != plaintext || !reflect.DeepEqual(opened.Instead, want) {
			t.Errorf("%.80s: opened %q with %+v, %v", instead, opened.Plaintext, opened.Instead, err)
		}
		p.members = append(w.members(), `"instead":`+instead)
		if opened, err := open(p, ai.DirectionPayload); err != nil || opened.Plaintext != plaintext || opened.Instead != nil {
			t.Errorf("%.80s with a payload: opened %q with %+v, %v", instead, opened.Plaintext, opened.Instead, err)
		}
	}
	for _, more := range []string{`"instead":`, `"instead":` + good + `,"instead":` + good} {
		p := w.parts()
		p.members = append(slices.Clone(asResult), more)
		opened, err := open(p, ai.DirectionResult)
		mustRefuse(t, more, opened, err, envelope.ErrMalformed)
	}
	p := w.parts()
	p.members = asResult
	p.inner = func(body, signature string) string {
		return `{"body":"` + body + `","signature":"` + signature + `","instead":` + good + `}`
	}
	if opened, err := open(p, ai.DirectionResult); err != nil || opened.Instead != nil {
		t.Errorf("instead outside the signed body: %+v, %v", opened, err)
	}
}

func TestReachCheck(t *testing.T) {
	good := ai.Stub{
		ID: "j", Kind: ai.KindGenerate, Owner: "alice", Site: "S", Audience: ai.AudienceNamed, SizeClass: ai.SizeSmall, DeadlineAt: 1,
	}
	if got := envelope.ReachOf(good); got != reach {
		t.Errorf("the reach of the stub is %v", got)
	}
	if err := reach.Check(good); err != nil {
		t.Errorf("the same reach: %v", err)
	}
	for what, change := range map[string]func(s *ai.Stub){
		"kind":                func(s *ai.Stub) { s.Kind = ai.KindChat },
		"a wider audience":    func(s *ai.Stub) { s.Audience = ai.AudiencePublic },
		"a narrower audience": func(s *ai.Stub) { s.Audience = ai.AudienceSelf },
		"owner":               func(s *ai.Stub) { s.Owner = "bob" },
		"owner in capitals":   func(s *ai.Stub) { s.Owner = "Alice" },
		"site":                func(s *ai.Stub) { s.Site = "T" },
		"all empty":           func(s *ai.Stub) { *s = ai.Stub{} },
	} {
		s := good
		change(&s)
		if err := reach.Check(s); err != envelope.ErrReach {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What a router may set by itself is not part of it.
	for what, change := range map[string]func(s *ai.Stub){
		"id":       func(s *ai.Stub) { s.ID = "k" },
		"size":     func(s *ai.Stub) { s.SizeClass = ai.SizeLarge },
		"deadline": func(s *ai.Stub) { s.DeadlineAt = 2 },
	} {
		s := good
		change(&s)
		if err := reach.Check(s); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAtRest seals as a site to itself. The two key ids are equal then, and the
// two directions must still be two.
func TestAtRest(t *testing.T) {
	w := newWorld(t)
	l := w.letter()
	l.Reach = &reach
	env, err := envelope.Seal(strings.NewReader(strings.Repeat("r", 32)), w.site.Signer(), w.site.Identity(), l)
	if err != nil {
		t.Fatal(err)
	}
	self := w.site.Identity().Fingerprint()
	want := envelope.Context{JobID: "job-1", Sender: self, Recipient: self, Direction: ai.DirectionPayload}
	if env.SenderKeyID != env.RecipientKeyID || env.SenderKeyID != ai.KeyID(self.String()) {
		t.Errorf("the labels are %v", env)
	}
	opened, err := envelope.Open(w.site.Opener(), w.site.Identity().Signing(), env, want)
	if err != nil || opened.Plaintext != plaintext || opened.Reach == nil || *opened.Reach != reach {
		t.Errorf("%v, %v", opened, err)
	}
	opened, err = envelope.Open(w.device.Opener(), w.site.Identity().Signing(), env, want)
	mustRefuse(t, "the device opens what is at rest", opened, err, envelope.ErrUnopenable)
	env.Direction, want.Direction = ai.DirectionResult, ai.DirectionResult
	opened, err = envelope.Open(w.site.Opener(), w.site.Identity().Signing(), env, want)
	mustRefuse(t, "what is at rest as a result", opened, err, envelope.ErrContext)
}

// TestForgedWithAWeakKey opens a box whose ephemeral key is a point of low
// order, so that its shared secret is zero and anyone can make it.
func TestForgedWithAWeakKey(t *testing.T) {
	w := newWorld(t)
	raw, err := base64.RawURLEncoding.DecodeString(w.device.Identity().Sealing().String())
	if err != nil {
		t.Fatal(err)
	}
	p := w.parts()
	var inner string
	p.inner = func(body, signature string) string {
		inner = `{"body":"` + body + `","signature":"` + signature + `"}`
		return inner
	}
	p.sealed(t)
	forged := boxWith(t, make([]byte, 32), raw, make([]byte, 32), []byte(inner))
	opened, err := w.open(w.envelope(base64.RawURLEncoding.EncodeToString(forged)))
	mustRefuse(t, "a box under a weak key", opened, err, envelope.ErrUnopenable)
}

// TestUnreadableIsNeverASignature has a sender under whose key the signature of
// zero bytes verifies: a point of low order, which a dishonest peer can pair
// with. A text that is no signature must not become that one.
func TestUnreadableIsNeverASignature(t *testing.T) {
	w := newWorld(t)
	point := make([]byte, 32)
	point[31] = 0x80
	sender, err := key.ParseSigningPublic(base64.RawURLEncoding.EncodeToString(point))
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	for at := deadline; at < deadline+64; at++ {
		p := w.parts()
		p.members[2] = `"senderKeyId":"` + sender.Fingerprint().String() + `"`
		p.members[4] = fmt.Sprintf(`"deadlineAt":%d`, at)
		for _, text := range []string{strings.Repeat("A", 86), "", "none"} {
			p.signature = func(string) string { return text }
			env, want := w.envelope(p.sealed(t)), w.context()
			want.Sender, env.SenderKeyID, env.DeadlineAt = sender.Fingerprint(), ai.KeyID(sender.Fingerprint().String()), ai.Millis(at)
			got, err := envelope.Open(w.device.Opener(), sender, env, want)
			if err == nil && len(text) == 86 {
				opened++
				continue
			}
			mustRefuse(t, "the signature "+text, got, err, envelope.ErrSignature)
		}
	}
	if opened == 0 {
		t.Error("the signature of zero bytes never verifies, so the test shows nothing")
	}
}

// FuzzOpen opens anything that a router could send.
func FuzzOpen(f *testing.F) {
	w := newWorld(f)
	good := w.envelope(w.parts().sealed(f))
	f.Add(good.Ciphertext, string(good.SenderKeyID), string(good.RecipientKeyID), string(good.Direction), int64(good.DeadlineAt))
	f.Add(good.Ciphertext[:64], string(good.SenderKeyID), string(good.RecipientKeyID), "payload", int64(good.DeadlineAt))
	f.Add("", "", "", "", int64(0))
	f.Fuzz(func(t *testing.T, ciphertext, sender, recipient, direction string, at int64) {
		env := ai.SealedEnvelope{
			Ciphertext: ciphertext, SenderKeyID: ai.KeyID(sender), RecipientKeyID: ai.KeyID(recipient),
			Direction: ai.Direction(direction), DeadlineAt: ai.Millis(at),
		}
		opened, err := w.open(env)
		if (err == nil) != (env == good) {
			t.Fatalf("%v opens: %v", env, err)
		}
		if err != nil && opened != (envelope.Opened{}) {
			t.Fatal("an error came with a value")
		}
	})
}

// FuzzInside opens what the pinned sender itself could have sealed: anything
// as the inside, and anything as the signed body. It must not panic, and gives
// nothing but what stands in a body signed for this context.
func FuzzInside(f *testing.F) {
	w := newWorld(f)
	members := strings.Join(append(w.members(), stub), ",")
	f.Add(true, "{"+members+"}")
	f.Add(true, "{"+strings.Join(w.members(), ",")+"}")
	f.Add(true, `{"plaintext":1e999,"stub":{"kind":[]}}`)
	f.Add(false, `{"body":"e30","signature":""}`)
	f.Fuzz(func(t *testing.T, signed bool, text string) {
		p := w.parts()
		p.inner = func(string, string) string { return text }
		if signed {
			sig, err := p.signer.Sign([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			p.inner = func(string, string) string {
				return `{"body":"` + base64.RawURLEncoding.EncodeToString([]byte(text)) + `","signature":"` + sig.String() + `"}`
			}
		}
		opened, err := w.open(w.envelope(p.sealed(t)))
		switch {
		case err != nil && opened != (envelope.Opened{}):
			t.Fatal("an error came with a value")
		case err == nil && !signed && !strings.Contains(text, "signature"):
			t.Fatalf("something unsigned opens: %q", text)
		case err == nil && opened.Reach != nil && (opened.Reach.Owner == "" || opened.Reach.Site == ""):
			t.Fatalf("a reach without owner or site: %v", opened.Reach)
		}
	})
}
