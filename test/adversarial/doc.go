// Package adversarial holds the suites in which a backend is the enemy, or the
// text that it is given: servers that redirect, flood and echo our key, programs
// that fork, hang, flood and show what they were given. Every backend of the
// contract's table names its suite. It has no code of its own.
package adversarial
