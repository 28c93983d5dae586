// Package configfile reads configuration files: JSON with comments and trailing
// commas, bounded, once, and strictly by a shape of package exact.
//
// Every mistake is named by its place and none by what stands there: a line and
// a column where the text is no JSON, else the path of the member and what it
// must be. All mistakes that can be told apart are named at once.
//
// [Edit] sets single members for their owner and leaves the rest of a file, its
// comments too, as it stands.
//
// It refuses to guess: there are no includes, no variables in values and no
// members that are read past. It keeps no secrets and has no type for one,
// since a configuration file may be read by others: keys are named in it by a
// file's path or an environment variable's name.
package configfile
