package compose

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"

	"github.com/go-json-experiment/json/jsontext"
)

// holds reports whether text stands in any of the places: as it is, inside a
// JSON string, or in the encodings in which bytes travel. Base64 is looked for at each of the three
// offsets that a text can have in a longer one.
func holds(text []byte, places ...[]byte) bool {
	quoted, _ := jsontext.AppendQuote(nil, text) // of valid UTF-8
	needles := [][]byte{text, quoted[1 : len(quoted)-1], []byte(hex.EncodeToString(text))}
	for offset := range 3 {
		padded := append(make([]byte, offset), text...)
		for _, enc := range []*base64.Encoding{base64.RawURLEncoding, base64.RawStdEncoding} {
			coded := enc.EncodeToString(padded)
			// The first and the last symbols also depend on the neighbours.
			from, to := (offset*8+5)/6, len(coded)-1
			if from < to {
				needles = append(needles, []byte(coded[from:to]))
			}
		}
	}
	for _, place := range places {
		for _, needle := range needles {
			if len(needle) > 0 && bytes.Contains(place, needle) {
				return true
			}
		}
	}
	return false
}
