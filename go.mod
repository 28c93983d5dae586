module github.com/allodhq/allod

go 1.26.0

require (
	github.com/go-json-experiment/json v1.27.2
	github.com/nlnwa/whatwg-url v0.6.2
	golang.org/x/crypto v0.59.0
)

require (
	github.com/bits-and-blooms/bitset v1.20.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)
