package backend

import (
	"context"
	"errors"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// What is refused about a backend's configuration, in the order in which it is
// judged. Those about addresses come back from every connection too.
var (
	ErrProcessClass = refusal.NewKind("process-backend-not-built", 501,
		"This backend is a program that is started for each run, not a server that has an address.",
		"Name a model server here, as ollama or openai-http.")
	ErrNoURL = refusal.NewKind("backend-url-missing", 400,
		"This backend has no address of its own, and none was given.",
		"Give the base URL of the model server, as in http://127.0.0.1:8080/v1.")
	ErrURL = refusal.NewKind("backend-url-invalid", 400,
		"The backend's base URL is not a URL.",
		"Give a whole URL with scheme, host and path, as in http://127.0.0.1:8080/v1.")
	ErrScheme = refusal.NewKind("backend-url-scheme", 400,
		"The backend's base URL begins with neither http nor https.",
		"Give an http or https URL.")
	ErrCredentials = refusal.NewKind("backend-url-credentials", 400,
		"The backend's base URL holds a user name or a password, and URLs are shown and logged.",
		"Take it out of the URL. An API key has a setting of its own.")
	ErrMetadata = refusal.NewKind("backend-metadata-address", 403,
		"The backend's address is a cloud's metadata service, which hands out the machine's credentials.",
		"Give the address of a model server.")
	ErrLinkLocal = refusal.NewKind("backend-link-local-address", 403,
		"The backend's address is link-local, where metadata services and unconfigured machines are.",
		"Give the model server an address of the private network, or run it on this machine.")
	ErrWildcard = refusal.NewKind("backend-wildcard-address", 403,
		"The backend's address names no machine.",
		"Write 127.0.0.1 for this machine, also where the server says that it listens on 0.0.0.0.")
	ErrMulticast = refusal.NewKind("backend-multicast-address", 403,
		"The backend's address reaches many machines at once.",
		"Give the address of one machine.")
	ErrNotLocal = refusal.NewKind("backend-not-local", 403,
		"The backend counts as free because its host is local by name, and the name leads to a machine elsewhere.",
		"Check what the name resolves to, or give the address itself; what is not local counts as metered.")
	ErrQuery = refusal.NewKind("backend-url-query", 400,
		"The backend's base URL has a query or a fragment, and paths are appended to it.",
		"End the base URL with its path, which is /v1 for most servers.")
	ErrKey = refusal.NewKind("backend-key-invalid", 400,
		"The backend's API key has characters that no key has, or is far too long.",
		"Copy the key again, without line breaks and quotes.")
)

// What goes wrong with a backend that was asked.
var (
	ErrUnauthorized = refusal.NewKind("backend-unauthorized", 401,
		"The model server refused the device's API key, or wants one.",
		"Check the API key of this backend.")
	ErrNoModel = refusal.NewKind("backend-model-not-found", 404,
		"The model server does not have this model, or has nothing at this address.",
		"Compare the model's name with the server's list, and check that the base URL ends as the server's documentation says.")
	ErrBackend = refusal.NewKind("backend-error", 502,
		"The model server did not answer as an OpenAI-compatible server does, or did not take the request.",
		"Look in the model server's own log. Very long questions may not fit into its model.")
	ErrFailing = refusal.NewKind("backend-failing", 503,
		"The model server reported a failure of its own, or too much work.",
		"Try again later. If it stays, look in the model server's own log.")
	ErrUnreachable = refusal.NewKind("backend-unreachable", 503,
		"The model server cannot be reached, or the connection to it was cut.",
		"Start the model server, and check the base URL.")
	ErrTimeout = refusal.NewKind("backend-timeout", 504,
		"The model server did not finish in the time that it was given.",
		"Allow more time, or use a smaller model.")
	ErrOutputTooLarge = refusal.NewKind("backend-output-too-large", 502,
		"The model server's answer is larger than allowed.",
		"Allow larger answers, or limit their tokens.")
	ErrEmpty = refusal.NewKind("backend-empty-answer", 502,
		"The model answered a small question with nothing.",
		"Try the model in the server's own program. Some need another chat template.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Model servers", Kinds: []*refusal.Kind{
	ErrProcessClass, ErrNoURL, ErrURL, ErrScheme, ErrCredentials, ErrMetadata, ErrLinkLocal, ErrWildcard, ErrMulticast, ErrNotLocal, ErrQuery, ErrKey,
	ErrUnauthorized, ErrNoModel, ErrBackend, ErrFailing, ErrUnreachable, ErrTimeout, ErrOutputTooLarge, ErrEmpty,
}}

// The codes of failed runs, as they are recorded.
const (
	CodeUnauthorized = "unauthorized"
	CodeNoModel      = "model-not-found"
	CodeBackend      = "backend-error"
	CodeUnreachable  = "backend-unreachable"
	CodeTimeout      = "timeout"
	CodeTooLarge     = "output-too-large"
)

// failures says how each refusal travels. The first row of a code is the one
// that [KindOf] finds.
var failures = []struct {
	kind      *refusal.Kind
	code      string
	retryable bool
}{
	{ErrUnauthorized, CodeUnauthorized, false},
	{ErrNoModel, CodeNoModel, false},
	{ErrBackend, CodeBackend, false},
	{ErrFailing, CodeBackend, true},
	{ErrUnreachable, CodeUnreachable, true},
	{ErrTimeout, CodeTimeout, true},
	{ErrOutputTooLarge, CodeTooLarge, false},
}

// KindOf is the refusal that explains a failed run's code to the backend's
// owner. A code that is not ours is explained by [ErrBackend].
func KindOf(code string) *refusal.Kind {
	for _, f := range failures {
		if f.code == code {
			return f.kind
		}
	}
	return ErrBackend
}

// outcomeOf is how a run ended that ended with err. The message is the kind's
// own sentence: a detail could tell the site about its user's network.
func outcomeOf(err error) ai.Outcome {
	if errors.Is(err, context.Canceled) {
		return ai.Cancellation{}
	}
	for _, f := range failures {
		if errors.Is(err, f.kind) {
			return ai.Failure{Code: f.code, Message: f.kind.Meaning(), Retryable: f.retryable}
		}
	}
	// What is left are the addresses that no connection is made to. They are the
	// owner's to mend, so trying again does not help.
	return ai.Failure{Code: CodeUnreachable, Message: ErrUnreachable.Meaning()}
}
