// Package cloud is a controller: the party that knows which machines are nodes, who
// may ask for what, and what was done (design, "controller"). [Open] puts it
// together on one data folder, which one process uses at a time.
//
// What the folder holds, all of it for this user alone:
//
//	zone.db              the store: people, clusters, nodes, credentials as hashes, the audit log
//	ca.pem               the key and the certificate of the controller's own authority
//	operator-tokens.key  the key that signs the tokens of people
//	machine-tokens.key   the key that signs the tokens of services' machines
//	acme/                public certificates, where a public name is served
//	admin.sock           the admin socket while it runs
//	allod.lock           held while a process uses the folder
//
// Whoever has ca.pem is the controller for every node that trusts its pin, and
// whoever has the two keys can make tokens. The store alone opens nothing: it has
// hashes of bearers and codes. Keys beside a database protect nothing from somebody
// who has the disk; encrypt the disk, and keep backups sealed.
//
// The first start makes the organization main, the operator admin, the cluster main
// in phase pallet, the authority and the keys. [Controller.Bootstrap] returns the
// code of the one login link that there is then.
//
// The package refuses to run any workload, to keep a secret that it could keep the
// hash of, and to make a second authority or key where one is damaged.
package cloud
