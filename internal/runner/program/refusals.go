package program

import (
	"context"
	"errors"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// What is refused before anything starts.
var (
	ErrServer = refusal.NewKind("backend-not-a-program", 400,
		"This backend is a model server, not a program that is started for each run.",
		"Give its base URL, or name claude-cli or codex-cli.")
	ErrRoot = refusal.NewKind("program-as-root", 403,
		"The agent runs as root, and a program that works on other people's text is not started as root.",
		"Run the agent as an ordinary user, the one that the program is logged in for.")
	ErrNotFound = refusal.NewKind("program-not-found", 503,
		"The backend's program is in no folder of the PATH that the agent was started with.",
		"Install it, or start the agent with a PATH that has its folder. Folders that are not absolute do not count.")
	ErrReplaceable = refusal.NewKind("program-replaceable", 403,
		"Another user of this machine could replace the backend's program, or a folder that it is in.",
		"Take the right to write away from others, or install the program as the agent's user or as root.")
	ErrShim = refusal.NewKind("program-shim", 501,
		"The backend's program is a batch file, and what it starts cannot be told from it.",
		"Install the program with npm or with its maker's installer.")
	ErrOld = refusal.NewKind("program-too-old", 503,
		"The backend's program is older than the versions that are known to leave the owner's files alone, or does not say its version.",
		"Update it: claude from 2.1.197, codex from 0.171.0.")
	ErrModel = refusal.NewKind("program-model-name", 400,
		"The model's name is empty, too long, begins with a hyphen, or has characters that cannot be shown.",
		"Correct the model in the configuration's route.")
	ErrScratch = refusal.NewKind("program-scratch", 500,
		"No folder can be made for the run of a program.",
		"See that the folder for temporary files exists, has room, and belongs to the agent's user.")
	ErrWalls = refusal.NewKind("program-walls", 500,
		"The program was not started, since the walls around it cannot be put up.",
		"See what allod doctor says of isolation.")
	ErrStart = refusal.NewKind("program-not-started", 503,
		"The backend's program cannot be started.",
		"Start it by hand, as the user that the agent runs as.")
)

// What goes wrong with a program that was started.
var (
	ErrLoggedOut = refusal.NewKind("program-not-logged-in", 401,
		"The device's program is not logged in.",
		"Log in as the user that the agent runs as: claude auth login, or codex login.")
	ErrLimit = refusal.NewKind("program-usage-limit", 429,
		"The account of the device's program has reached its usage limit.",
		"Wait until the limit resets. The program itself says when.")
	ErrNoModel = refusal.NewKind("program-no-model", 404,
		"The device's program does not have this model.",
		"Compare the model in the configuration's route with the program's own list.")
	ErrService = refusal.NewKind("program-service-failing", 503,
		"The service behind the device's program failed, or was not reached.",
		"Try again later. If it stays, try the program by hand.")
	ErrFailed = refusal.NewKind("program-failed", 502,
		"The device's program did not end the run as its own rules say it does.",
		"Try the program by hand, as the user that the agent runs as.")
	ErrEmpty = refusal.NewKind("program-empty-answer", 502,
		"The device's program ended without an error and without an answer.",
		"Try again. If it stays, try the program by hand.")
	ErrUnread = refusal.NewKind("program-prompt-unread", 502,
		"The device's program ended without having read the whole question.",
		"Try the program by hand with a long text on its standard input.")
	ErrUsedTool = refusal.NewKind("program-used-a-tool", 502,
		"The device's program used a tool although it was told to use none, so its answer may hold what is nobody's business.",
		"Report the program's version. A version between may do without.")
	ErrTime = refusal.NewKind("program-timeout", 504,
		"The device's program did not finish in the time that it was given.",
		"Allow more time, or use a faster model.")
	ErrSilent = refusal.NewKind("program-silent", 504,
		"The device's program wrote nothing for too long.",
		"Try the program by hand. It may wait for something that nobody sees.")
	ErrTooLarge = refusal.NewKind("program-output-too-large", 502,
		"The device's program wrote more than allowed.",
		"Allow larger answers.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Programs as backends", Kinds: []*refusal.Kind{
	ErrServer, ErrRoot, ErrNotFound, ErrReplaceable, ErrShim, ErrOld, ErrModel, ErrScratch, ErrWalls, ErrStart,
	ErrLoggedOut, ErrLimit, ErrNoModel, ErrService, ErrFailed, ErrEmpty, ErrUnread, ErrUsedTool, ErrTime, ErrSilent, ErrTooLarge,
}}

// failures says how each refusal travels, in the codes of the model servers.
var failures = []struct {
	kind      *refusal.Kind
	code      string
	retryable bool
}{
	{ErrLoggedOut, backend.CodeUnauthorized, false},
	{ErrLimit, backend.CodeBackend, true},
	{ErrNoModel, backend.CodeNoModel, false},
	{ErrModel, backend.CodeNoModel, false},
	{ErrService, backend.CodeBackend, true},
	{ErrFailed, backend.CodeBackend, false},
	{ErrEmpty, backend.CodeBackend, true},
	{ErrUnread, backend.CodeBackend, false},
	{ErrUsedTool, backend.CodeBackend, false},
	{ErrTime, backend.CodeTimeout, true},
	{ErrSilent, backend.CodeTimeout, true},
	{ErrTooLarge, backend.CodeTooLarge, false},
}

// outcomeOf is how a run ended that ended with err. The message is the kind's
// own sentence, so that nothing the program wrote travels but an answer.
func outcomeOf(err error) ai.Outcome {
	if errors.Is(err, context.Canceled) {
		return ai.Cancellation{}
	}
	for _, f := range failures {
		if errors.Is(err, f.kind) {
			return ai.Failure{Code: f.code, Message: f.kind.Meaning(), Retryable: f.retryable}
		}
	}
	// What is left kept the program from starting, and is the owner's to mend.
	return ai.Failure{Code: backend.CodeUnreachable, Message: ErrStart.Meaning()}
}
