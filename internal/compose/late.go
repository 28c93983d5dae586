package compose

import "net/http"

// late is a handler that is set before the first request is served.
type late struct{ http.Handler }
