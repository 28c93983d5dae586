// Package programs starts what the suites beside it run as processes: the command
// allod, built from this tree, and the programs of others, with a model server that
// the test holds in its hand. All of it ends with the test.
//
// It looks at no answers: what must be in them is for each suite to say.
package programs
