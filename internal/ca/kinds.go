package ca

import "github.com/allodhq/allod/refusal"

// What this package refuses, on the side of the authority.
var (
	ErrDamaged = refusal.NewKind("ca-damaged", 500,
		"The file with the controller's certificate authority is damaged, or it is not one of Allod's.",
		"Restore ca.pem from a backup. A new authority would cut off every node, so Allod never replaces the file by itself.")
	ErrTime = refusal.NewKind("ca-out-of-time", 500,
		"By this machine's clock the controller's certificate authority is not valid now.",
		"Correct the clock. If the authority really has run out, move ca.pem away; then every node has to join again.")
	ErrHostName = refusal.NewKind("ca-host-name", 400,
		"A name to serve or to connect to is no DNS name and no IP address, or there are none or too many.",
		"Give 1 to 32 names such as cloud.example.org, or addresses such as 192.0.2.1, without port and without wildcard.")
)

// What this package refuses, on the side of a client.
var (
	ErrPinText = refusal.NewKind("ca-pin-text", 400,
		"The digest of the controller's key is not written as it has to be.",
		"Copy the whole join line again.")
	ErrCertificate = refusal.NewKind("ca-certificate", 400,
		"The certificate is not that of a certificate authority.",
		"Give the controller's CA certificate, as PEM or DER.")
	ErrPin = refusal.NewKind("ca-other-authority", 502,
		"The server's certificate comes from another certificate authority than the one that this machine trusts.",
		"Check the address. If it is right, somebody may be in between, or the controller has been made anew: get a new join line from its operator.")
	ErrHost = refusal.NewKind("ca-other-host", 502,
		"The server's certificate is not for the host that was asked for.",
		"Use a name or an address that the controller serves, or add this one to the controller.")
	ErrClock = refusal.NewKind("ca-clock", 502,
		"The server's certificate is genuine and not valid at the time that this machine's clock shows.",
		"Correct the clock of the machine that is wrong, and try again; nothing is used up.")
	ErrChain = refusal.NewKind("ca-chain", 502,
		"The server's certificates cannot be used: there are none or too many, or they were made for something else.",
		"Check that the address is that of an Allod controller.")
	ErrServerTime = refusal.NewKind("ca-server-time", 502,
		"The server did not tell its time.",
		"Check that the address is that of an Allod controller, and that it can be reached.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Certificates of a controller", Kinds: []*refusal.Kind{
	ErrDamaged, ErrTime, ErrHostName, ErrPinText, ErrCertificate, ErrPin, ErrHost, ErrClock, ErrChain, ErrServerTime,
}}
