package service

import "github.com/allodhq/allod/refusal"

// What this package refuses.
var (
	ErrRoot = refusal.NewKind("service-root", 403,
		"The agent's service belongs to the ordinary user whose models it uses, and this is root.",
		"Log in as that user and run the command again, without sudo.")
	ErrTemporary = refusal.NewKind("service-program-temporary", 409,
		"This program stands in a place whose files are thrown away, so a service that starts it would break.",
		"Move it to a place that stays, as ~/.local/bin or /usr/local/bin, and run the command from there.")
	ErrWritable = refusal.NewKind("service-program-writable", 403,
		"Other users can change this program, or a folder that it stands in, and with it what the service runs.",
		"Take the right to write away from others, as chmod go-w does, or move the program to a folder of yours.")
	ErrProgram = refusal.NewKind("service-program", 404,
		"The program that the service starts is not there, or is no program.",
		"Run allod agent install by the program where it is now.")
	ErrPath = refusal.NewKind("service-path", 400,
		"A path for the service must be whole and of at most 4096 bytes of UTF-8 without control characters.",
		"Rename the folder, or choose another one.")
	ErrSystem = refusal.NewKind("service-system", 501,
		"On this operating system Allod knows no service manager.",
		"Have what starts programs on this system run allod agent run.")
	ErrNoManager = refusal.NewKind("service-no-manager", 503,
		"No service manager of this user answers.",
		"Log in as this user by itself, not by su or sudo. Where there is no systemd, have what starts programs here run allod agent run.")
	ErrManager = refusal.NewKind("service-manager", 500,
		"The service manager did not do as it was told.",
		"Look at what it says of the service: systemctl --user status allod-agent, or launchctl print, or the Task Scheduler.")
	ErrForeign = refusal.NewKind("service-foreign", 409,
		"There is a definition of this service that Allod did not write, or that was changed since. It is left as it is.",
		"Move it away, and run allod agent install again.")
	ErrAbsent = refusal.NewKind("service-not-installed", 404,
		"The agent is not installed as a service.",
		"Install it: allod agent install.")
	ErrElsewhere = refusal.NewKind("service-runs-elsewhere", 409,
		"An agent runs in this folder, and not as the service: perhaps in a terminal.",
		"End it there, by Ctrl-C in its terminal, and run the command again.")
	ErrEnded = refusal.NewKind("service-ended", 500,
		"The agent was started as a service and ended at once.",
		"Look in its log; allod agent status says where it is. allod agent run says the same in this terminal.")
	ErrSilent = refusal.NewKind("service-silent", 503,
		"The service manager did as it was told, and the agent did not follow in time.",
		"Wait a moment and look again with allod agent status, or look in its log.")
	ErrEnvironment = refusal.NewKind("service-environment", 400,
		"The file service.env in the agent's folder cannot be used: others can read it, or a line is not NAME=value.",
		"Have one NAME=value in a line, without quotes, and lines that begin with # for comments, and keep others out by chmod 600.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "The agent as a service", Kinds: []*refusal.Kind{
	ErrRoot, ErrTemporary, ErrWritable, ErrProgram, ErrPath, ErrSystem, ErrNoManager, ErrManager, ErrForeign, ErrAbsent, ErrElsewhere, ErrEnded, ErrSilent, ErrEnvironment,
}}
