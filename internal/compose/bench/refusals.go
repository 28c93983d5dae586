package bench

import "github.com/allodhq/allod/refusal"

// What this package refuses.
var (
	ErrConfig = refusal.NewKind("bench-config", 400,
		"The benchmark cannot run with these numbers.",
		"Change the number that is named.")
	ErrFolder = refusal.NewKind("bench-folder", 500,
		"The benchmark cannot work in this folder: it cannot be made or written, or it is not empty.",
		"Name an absent or empty folder with --data.")
	ErrMemoryDisk = refusal.NewKind("bench-memory-disk", 400,
		"The folder is in memory, where a commit costs nothing, so the numbers would say nothing about a disk.",
		"Name a folder on a disk with --data.")
	ErrSite = refusal.NewKind("bench-site", 500,
		"The site that the benchmark starts as a process of its own did not come up.",
		"Read what it wrote, which is above. allod site serve must work on this machine.")
	ErrController = refusal.NewKind("bench-controller", 500,
		"The controller that the benchmark starts as a process of its own did not come up.",
		"Read what it wrote, which is above. allod controller serve must work on this machine.")
	ErrAnswer = refusal.NewKind("bench-answer", 500,
		"The site answered otherwise than it does to an app and devices that do everything right, so nothing was measured.",
		"Run it again, and report it with its text if it stays.")
	ErrStopped = refusal.NewKind("bench-stopped", 503,
		"The benchmark was stopped before it was done.",
		"Run it again; a run takes about a minute.")
	ErrBars = refusal.NewKind("bench-bars", 500,
		"At least one bar was missed.",
		"See which in the report. On a machine that has other work to do, run it again when it has not.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Benchmarks", Kinds: []*refusal.Kind{
	ErrConfig, ErrFolder, ErrMemoryDisk, ErrSite, ErrController, ErrAnswer, ErrStopped, ErrBars,
}}
