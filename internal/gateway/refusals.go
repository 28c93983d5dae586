package gateway

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/wire/ai"
)

// What a request is refused for. A kind's name with underscores is its code in
// OpenAI's shape, and OpenAI's own code where there is one.
var (
	ErrJSON = refusal.NewKind("invalid-json", 400,
		"The body is not one JSON object.",
		"Send what an OpenAI client sends, as application/json.")
	ErrTooLarge = refusal.NewKind("request-too-large", 413,
		"The body is larger than any question can be.",
		"Send less text at once.")
	ErrUnknown = refusal.NewKind("unknown-parameter", 400,
		"The request has a member that is none of this endpoint's.",
		"Leave it out.")
	ErrUnsupported = refusal.NewKind("unsupported-parameter", 400,
		"The request asks for something that a user's device cannot be asked for.",
		"Leave the member out.")
	ErrUnsupportedValue = refusal.NewKind("unsupported-value", 400,
		"A member asks for something that a user's device cannot be asked for.",
		"Send one of the values that docs/gateway.md lists for it.")
	ErrMissing = refusal.NewKind("missing-required-parameter", 400,
		"A member that the request needs is missing.",
		"Send the member that is named.")
	ErrValue = refusal.NewKind("invalid-value", 400,
		"A member or a header has another type or value than it can have.",
		"Compare it with docs/gateway.md.")
	ErrTextLength = refusal.NewKind("string-above-max-length", 400,
		"A text is longer than a question can be.",
		"Send less text at once.")
	ErrListLength = refusal.NewKind("array-above-max-length", 400,
		"A list has more entries than a question can have.",
		"Send fewer, for instance only the newest turns.")
	ErrModel = refusal.NewKind("model-not-found", 404,
		"The site serves no model under this label to this user, or not at this endpoint, or nobody is online who could.",
		"List the models to see the labels, or use auto.")
	ErrURL = refusal.NewKind("unknown-url", 404,
		"This part of OpenAI's API is not served here.",
		"Use chat completions, completions or models.")
	ErrMethod = refusal.NewKind("method-not-allowed", 405,
		"This path does not take this method.",
		"The header Allow names the one that it takes.")
	ErrBusy = refusal.NewKind("rate-limit-exceeded", 429,
		"As many requests are under way as may be.",
		"Wait until some are answered.")
	ErrSlow = refusal.NewKind("request-timeout", 408,
		"The body came too slowly.",
		"Send it within a minute, and a second more for each 256 KiB.")
	ErrStopping = refusal.NewKind("site-stopping", 503,
		"The site is being stopped, so it waits for no answer any more.",
		"Ask again in a moment. A job that is named by X-Allod-Job goes on: collect it by its id at /v1/jobs.")
)

// How a job ends without an answer, besides what package site refuses.
var (
	ErrQueueFull = refusal.NewKind("queue-full", 429,
		"The user has as many unfinished jobs as the site allows.",
		"Wait until some are finished, or cancel some.")
	ErrDevice = refusal.NewKind("device-failed", 502,
		"The user's device ran the job and reports a failure.",
		"Look at the job by its id for what the device says, and at the device's own log.")
	ErrGivenBack = refusal.NewKind("job-given-back", 502,
		"A device of the user's took the job and did not finish it, and none has taken it since: it refused the job, fell silent, or its model does not work.",
		"Look at the device's own log. The job was canceled.")
	ErrPending = refusal.NewKind("job-pending", 504,
		"The job did not end in the time that was waited for it, and goes on.",
		"Collect it by its id at /v1/jobs, or cancel it there.")
	ErrExpired = refusal.NewKind("job-expired", 504,
		"No device took the job in time.",
		"Ask again when a device of the user's is free.")
	ErrCanceled = refusal.NewKind("job-canceled", 409,
		"The job was canceled before there was an answer.",
		"Ask again if the answer is still wanted.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "The gateway for OpenAI clients", Kinds: []*refusal.Kind{
	ErrJSON, ErrTooLarge, ErrUnknown, ErrUnsupported, ErrUnsupportedValue, ErrMissing, ErrValue, ErrTextLength, ErrListLength,
	ErrModel, ErrURL, ErrMethod, ErrBusy, ErrSlow, ErrStopping, ErrQueueFull, ErrDevice, ErrGivenBack, ErrPending, ErrExpired, ErrCanceled,
}}

// codes are OpenAI's own names of refusals that other packages declare.
var codes = map[*refusal.Kind]string{appapi.ErrAppKey: "invalid_api_key"}

// codeOf is the code of a kind in OpenAI's shape.
func codeOf(k *refusal.Kind) string {
	if code, ok := codes[k]; ok {
		return code
	}
	return strings.ReplaceAll(k.Name(), "-", "_")
}

// KindOf is the refusal behind a code, among those that a client of the gateway
// meets; nil for a code that is none of them, as internal: what it says is of the
// process that says it.
func KindOf(code string) *refusal.Kind {
	met := append([]*refusal.Kind{
		appapi.ErrAppKey, appapi.ErrScope, appapi.ErrOwner, site.ErrNoRunnerAvailable, site.ErrQuestion,
	}, Kinds.Kinds...)
	for _, k := range met {
		if codeOf(k) == code {
			return k
		}
	}
	return nil
}

// Waits that are asked for where waiting helps.
const (
	afterBusy     = time.Second
	afterFull     = 5 * time.Second
	afterNoRunner = 15 * time.Second
	afterStop     = 5 * time.Second
)

// told names refusals of package site as clients are told them.
func told(err error) error {
	if errors.Is(err, site.ErrQuota) {
		return ErrQueueFull.Because(err).After(afterFull)
	}
	return err
}

// stopped refuses for a site that stops.
func stopped(cause error) error { return ErrStopping.Because(cause).After(afterStop) }

// problem is a refusal with what OpenAI's shape says besides.
type problem struct {
	what error
	// param is the member or header that is meant, in our own words; empty means
	// none.
	param string
	// code replaces the kind's own where a device gave one.
	code string
	// retry is what the SDKs' header x-should-retry says; empty leaves it to them.
	retry string
}

func (p *problem) Error() string { return refusal.From(p.what).Error() }

func (p *problem) Unwrap() error { return p.what }

// about refuses a member by its name.
func about(param string, what error) error { return &problem{what: what, param: param} }

// The shape of OpenAI's errors.
type (
	errorBody struct {
		Error errorDetail `json:"error"`
	}
	errorDetail struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
)

// typeOf is the coarse word that OpenAI puts beside a code.
func typeOf(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// problemOf reads an error as a problem.
func problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	return &problem{what: err}
}

// body is the problem in OpenAI's shape, and its status.
func (p *problem) body() (status int, text []byte) {
	r := refusal.From(p.what)
	k := r.Kind()
	d := errorDetail{Type: typeOf(k.Status()), Code: codeOf(k)}
	d.Message = k.Meaning() + " "
	if r.Detail() != "" {
		d.Message += r.Detail() + " "
	}
	d.Message += k.WayOut()
	if p.param != "" {
		d.Param = &p.param
	}
	if p.code != "" {
		d.Code = p.code
	}
	text, _ = json.Marshal(errorBody{d}) // texts of our own, and numbers
	return k.Status(), text
}

// deviceCode is a device's code as it may be repeated: a plain word that no code
// of ours looks like. What a device says is data, and this is the whole of it.
func deviceCode(f ai.Failure) string {
	if len(f.Code) > 64 || strings.Trim(f.Code, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return codeOf(ErrDevice)
	}
	return f.Code
}
