package sqlite

import "sync"

// Bounds of a [memo]: entries, and bytes of a text that is kept. An identity has
// some 300 bytes, and so has a list of a few capabilities.
const (
	maxMemo     = 1 << 10
	maxMemoText = 4 << 10
)

// memo keeps what reading a text gave, by the whole text. A row that was changed
// has another text and is read anew, so nothing has to be told of changes; what
// is not in the text, as whether a device is revoked, is not in a memo either.
type memo[T any] struct {
	read func(text string) (T, error)

	mu  sync.Mutex
	by  map[string]T
	old map[string]T
}

func newMemo[T any](read func(text string) (T, error)) *memo[T] {
	return &memo[T]{read: read, by: map[string]T{}}
}

// get returns what the text reads as. Values are shared: nobody changes them.
// Errors are not kept.
func (m *memo[T]) get(text string) (T, error) {
	m.mu.Lock()
	v, ok := m.by[text]
	if !ok {
		if v, ok = m.old[text]; ok {
			m.put(text, v)
		}
	}
	m.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := m.read(text)
	if err == nil && len(text) <= maxMemoText {
		m.mu.Lock()
		m.put(text, v)
		m.mu.Unlock()
	}
	return v, err
}

// put keeps a value. Of two generations the older one is dropped whole, which
// forgets only what nobody asked for while a whole generation came.
func (m *memo[T]) put(text string, v T) {
	if len(m.by) >= maxMemo/2 {
		m.old, m.by = m.by, map[string]T{}
	}
	m.by[text] = v
}
