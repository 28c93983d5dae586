package cli

import "runtime"

// How much more than what is in use counts as in use, in bytes; see [slack].
const (
	siteSlack  = 16 << 20
	agentSlack = 8 << 20
)

// slack lets the collector wait until there is more garbage, until release is
// called. The heap of a site or an agent is so small that collecting its garbage
// would be a tenth of its work. The block is never touched, so it takes no memory
// itself; a larger GOGC would multiply a large heap too.
func slack(bytes int) (release func()) {
	block := make([]byte, bytes)
	return func() { runtime.KeepAlive(block) }
}
