// Package pace is package internal/pace under the name by which a node's programs
// know it. It refuses to add anything.
package pace

import (
	"time"

	"github.com/allodhq/allod/internal/pace"
)

// Pace is one program's slots. Make it with New.
type Pace = pace.Pace

// New makes slots that are interval apart.
func New(interval time.Duration) Pace { return pace.New(interval) }
