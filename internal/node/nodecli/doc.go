// Package nodecli is the allod-node command: flags in, one call out. It makes a machine
// a node of somebody's small cloud, and keeps Spark and Pallet running, which are two
// processes of the same program.
//
// It works on Linux, as root. With --user it works as whoever calls it, in folders that
// the flags name; the control sockets then take requests of that user and of nobody
// else, as they take those of root otherwise.
//
// It refuses to decide anything about trust: that is done in packages spark, pallet and
// daemon. It shows no secret.
package nodecli
