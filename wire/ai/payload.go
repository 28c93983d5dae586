package ai

import "github.com/allodhq/allod/internal/exact"

// Bounds of a payload, in UTF-16 code units where they count text.
const (
	// MaxTextUnits bounds one prompt, system text or message.
	MaxTextUnits = 1_000_000
	// MaxMessages bounds the turns of a chat.
	MaxMessages = 256
	// MaxPayloadUnits bounds all text of one payload together.
	MaxPayloadUnits = 4_000_000
)

// Payload is what a job asks: a [Generate] or a [Chat]. It is data for a model
// and names no model, backend, address or flag (MUSTs KIND_NO_CODE and
// NO_PAYLOAD_ROUTING).
type Payload interface {
	// Kind is the job kind that this payload belongs to.
	Kind() Kind
	// TextUnits is the length of all its text in UTF-16 code units; role names
	// do not count.
	TextUnits() int

	payload()
}

// Generate asks for a text that follows a prompt. It is the payload of
// [KindGenerate].
type Generate struct {
	// Prompt is 1 to [MaxTextUnits] long.
	Prompt string
	// System is an instruction beside the prompt, at most [MaxTextUnits] long;
	// empty means none.
	System string
}

// Chat asks for the next turn of a conversation. It is the payload of
// [KindChat].
type Chat struct {
	// Messages are the turns so far, 1 to [MaxMessages] of them.
	Messages []ChatMessage
	// System is an instruction beside the turns, at most [MaxTextUnits] long;
	// empty means none.
	System string
}

// ChatMessage is one turn.
type ChatMessage struct {
	Role Role
	// Content is at most [MaxTextUnits] long and may be empty.
	Content string
}

// Role says who spoke a turn.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleSystem    Role = "system"
)

// Roles returns all roles.
func Roles() []Role { return []Role{RoleUser, RoleAssistant, RoleSystem} }

// Kind is [KindGenerate].
func (Generate) Kind() Kind { return KindGenerate }

// Kind is [KindChat].
func (Chat) Kind() Kind { return KindChat }

// TextUnits counts prompt and system.
func (g Generate) TextUnits() int { return TextUnits(g.Prompt) + TextUnits(g.System) }

// TextUnits counts all contents and system.
func (c Chat) TextUnits() int {
	n := TextUnits(c.System)
	for _, m := range c.Messages {
		n += TextUnits(m.Content)
	}
	return n
}

func (Generate) payload() {}
func (Chat) payload()     {}

// TextUnits is the length of s in UTF-16 code units, the contract's unit for
// every text length.
func TextUnits(s string) int { return exact.Units(s) }

// SizeClass is a coarse measure of a payload that a router may know.
type SizeClass string

// The size classes. A site gives small, medium or large; unbounded is reserved.
const (
	SizeSmall     SizeClass = "small"
	SizeMedium    SizeClass = "medium"
	SizeLarge     SizeClass = "large"
	SizeUnbounded SizeClass = "unbounded"
)

// Upper bounds of the small and the medium class, inclusive, in UTF-16 code
// units.
const (
	MaxSmallUnits  = 4_000
	MaxMediumUnits = 64_000
)

// SizeClasses returns all size classes, the smallest first.
func SizeClasses() []SizeClass {
	return []SizeClass{SizeSmall, SizeMedium, SizeLarge, SizeUnbounded}
}

// SizeClassOf is the class of a payload with that much text.
func SizeClassOf(textUnits int) SizeClass {
	switch {
	case textUnits <= MaxSmallUnits:
		return SizeSmall
	case textUnits <= MaxMediumUnits:
		return SizeMedium
	}
	return SizeLarge
}

// Ceiling is the largest payload of the class in UTF-16 code units, and whether
// there is one.
func (s SizeClass) Ceiling() (units int, bounded bool) {
	switch s {
	case SizeSmall:
		return MaxSmallUnits, true
	case SizeMedium:
		return MaxMediumUnits, true
	}
	return 0, false
}
