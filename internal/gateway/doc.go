// Package gateway answers OpenAI's clients with the models of their users.
//
// It is one more face of the app interface, beside package appapi and on the same
// keys: a request becomes a job of its owner, is waited for, and is answered as
// OpenAI's API answers.
//
//	POST /v1/chat/completions   a job of the kind llm.chat
//	POST /v1/completions        a job of the kind llm.generate
//	GET  /v1/models             the labels that somebody online could serve
//	GET  /v1/models/{model}     one of them
//
// The owner is the key's owner, or the member user where the key has none. A
// model is a label of the site's, and never the name of a model of the owner's: a
// request cannot choose what runs on a person's machine.
//
// What a device cannot be asked for, as tools, images and sampling parameters, is
// refused by the member's name and never passed over in silence; a site may list
// members to drop instead, and each answer says which were.
//
// The text of a streamed answer comes in one piece, since devices hand in whole
// answers. Errors have OpenAI's shape, with codes that docs/gateway.md lists.
//
// The package refuses to name an owner's models and to keep anything but jobs.
package gateway
