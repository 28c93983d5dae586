// Package appapi is an HTTP interface to a site for apps in any language.
//
// Every request carries a key of the site as a bearer token. Keys belong to apps'
// servers. They are 32 random bytes each, kept as hashes only, with the scopes
// that they have and, where they are bound, the one owner whom they are for. To a
// bound key, what other owners have is the same as what is not there.
//
// Bodies and answers are JSON objects with exactly the listed members. Errors
// are refusals, as docs/refusals.md lists them. openapi.json describes all of it,
// and is held against the routes and every answer of the tests.
//
// The package refuses to hold rules of its own: it calls package site.
package appapi
