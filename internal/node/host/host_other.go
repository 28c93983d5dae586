//go:build !linux

package host

import "time"

// Sampler takes looks at the machine.
type Sampler struct{}

// New returns [ErrSystem] here: it works on Linux only.
func New(Options) (*Sampler, error) { return nil, ErrSystem }

// Sample is never reached here.
func (*Sampler) Sample(now time.Time) Facts { return Facts{At: now} }
