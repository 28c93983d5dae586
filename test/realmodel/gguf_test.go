package realmodel_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// The size of the model. Each head has width/heads elements, which rotary
// embedding needs to be even.
const (
	width    = 64
	heads    = 4
	kvHeads  = 2
	inner    = 128
	layers   = 2
	training = 512     // tokens of context that the model says it was trained on
	maxModel = 1 << 20 // bytes, of the whole file
)

// Tokens with a meaning, in the order of the vocabulary.
const (
	unknown = iota
	begin
	end
	firstByte // 256 tokens, one for each byte
	firstWord = firstByte + 256
)

// Numbers that the GGUF format gives to types of values and of tokens.
const (
	typeUint32  uint32 = 4
	typeInt32   uint32 = 5
	typeFloat32 uint32 = 6
	typeString  uint32 = 8
	typeArray   uint32 = 9

	tokenNormal  int32 = 1
	tokenUnknown int32 = 2
	tokenControl int32 = 3
	tokenByte    int32 = 6

	alignment = 32
)

// A temper is how a model behaves, whatever it is asked.
type temper int

const (
	rambles temper = iota // never ends by itself
	silent                // ends before the first word
)

// tinyModel returns a GGUF file of a llama model with random weights. The same
// seed gives the same bytes. The model reads any text, and its answer is words
// of one vowel: tokens that are one byte would cut characters, so the weights
// keep it from saying them.
func tinyModel(seed uint64, mood temper) []byte {
	words, scores, types := vocabulary()
	var meta bytes.Buffer
	entries := uint64(0)
	set := func(name string, of uint32, values ...any) {
		entries++
		put(&meta, name, of)
		put(&meta, values...)
	}
	set("general.architecture", typeString, "llama")
	set("general.name", typeString, "tiny random")
	set("general.file_type", typeUint32, uint32(0)) // all weights are F32
	set("llama.context_length", typeUint32, uint32(training))
	set("llama.embedding_length", typeUint32, uint32(width))
	set("llama.block_count", typeUint32, uint32(layers))
	set("llama.feed_forward_length", typeUint32, uint32(inner))
	set("llama.attention.head_count", typeUint32, uint32(heads))
	set("llama.attention.head_count_kv", typeUint32, uint32(kvHeads))
	set("llama.attention.layer_norm_rms_epsilon", typeFloat32, float32(1e-5))
	set("llama.rope.dimension_count", typeUint32, uint32(width/heads))
	set("llama.vocab_size", typeUint32, uint32(len(words)))
	set("tokenizer.ggml.model", typeString, "llama")
	set("tokenizer.ggml.tokens", typeArray, typeString, uint64(len(words)), words)
	set("tokenizer.ggml.scores", typeArray, typeFloat32, uint64(len(words)), scores)
	set("tokenizer.ggml.token_type", typeArray, typeInt32, uint64(len(words)), types)
	set("tokenizer.ggml.unknown_token_id", typeUint32, uint32(unknown))
	set("tokenizer.ggml.bos_token_id", typeUint32, uint32(begin))
	set("tokenizer.ggml.eos_token_id", typeUint32, uint32(end))

	var index, weights bytes.Buffer
	tensors := uint64(0)
	add := func(name string, values []float32, shape ...uint64) {
		tensors++
		put(&index, name, uint32(len(shape)), shape, uint32(0), uint64(weights.Len()))
		put(&weights, values)
		pad(&weights)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	// A matrix turns in values into out. The format names the inner side first.
	noise := func(in, out int, scale float64) []float32 {
		values := make([]float32, in*out)
		for i := range values {
			values[i] = float32(r.NormFloat64() * scale)
		}
		return values
	}
	matrix := func(name string, in, out int) {
		add(name, noise(in, out, 0.05), uint64(in), uint64(out))
	}
	norm := func(name string) {
		ones := make([]float32, width)
		for i := range ones {
			ones[i] = 1
		}
		add(name, ones, width)
	}

	// The first element of every embedding is 1, large beside the noise, so the
	// first column of the output acts as a bias.
	embedding := noise(width, len(words), 0.1)
	output := noise(width, len(words), 1)
	for token := range words {
		embedding[token*width] = 1
		bias := &output[token*width]
		switch {
		case token >= firstWord:
			*bias = 0
		case token == end && mood == silent:
			*bias = 20
		default:
			clear(output[token*width : (token+1)*width])
			*bias = -20
		}
	}
	add("token_embd.weight", embedding, width, uint64(len(words)))
	for i := range layers {
		block := fmt.Sprintf("blk.%d.", i)
		kv := width / heads * kvHeads
		norm(block + "attn_norm.weight")
		matrix(block+"attn_q.weight", width, width)
		matrix(block+"attn_k.weight", width, kv)
		matrix(block+"attn_v.weight", width, kv)
		matrix(block+"attn_output.weight", width, width)
		norm(block + "ffn_norm.weight")
		matrix(block+"ffn_gate.weight", width, inner)
		matrix(block+"ffn_up.weight", width, inner)
		matrix(block+"ffn_down.weight", inner, width)
	}
	norm("output_norm.weight")
	add("output.weight", output, width, uint64(len(words)))

	var file bytes.Buffer
	file.WriteString("GGUF")
	put(&file, uint32(3), tensors, entries)
	file.Write(meta.Bytes())
	file.Write(index.Bytes())
	pad(&file)
	file.Write(weights.Bytes())
	return file.Bytes()
}

// vocabulary is special tokens, every byte, and words of one vowel. Words begin
// with the sign that stands for a space. The tokenizer joins letters into words,
// and prefers what has the higher score.
func vocabulary() (words []string, scores []float32, types []int32) {
	add := func(word string, of int32) {
		scores = append(scores, -float32(len(words)))
		words = append(words, word)
		types = append(types, of)
	}
	add("<unk>", tokenUnknown)
	add("<s>", tokenControl)
	add("</s>", tokenControl)
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), tokenByte)
	}
	for _, consonant := range "bdfgklmnprst" {
		for _, vowel := range "aeiou" {
			add("\u2581"+string(consonant)+string(vowel), tokenNormal)
		}
	}
	return words, scores, types
}

// put writes values as GGUF has them: little endian, texts after their length.
func put(w *bytes.Buffer, values ...any) {
	for _, value := range values {
		switch v := value.(type) {
		case string:
			put(w, uint64(len(v)))
			w.WriteString(v)
		case []string:
			for _, s := range v {
				put(w, s)
			}
		default:
			if err := binary.Write(w, binary.LittleEndian, v); err != nil {
				panic(err) // a type without a fixed size, so a mistake in this file
			}
		}
	}
}

func pad(w *bytes.Buffer) {
	for w.Len()%alignment != 0 {
		w.WriteByte(0)
	}
}

// TestTinyModel always runs, so that the generator does not rot while nobody asks for the server.
func TestTinyModel(t *testing.T) {
	model := tinyModel(1, rambles)
	if len(model) > maxModel {
		t.Errorf("the model has %d bytes, more than %d", len(model), maxModel)
	}
	if len(model)%alignment != 0 {
		t.Errorf("the model has %d bytes, which is no multiple of %d", len(model), alignment)
	}
	if !bytes.Equal(model, tinyModel(1, rambles)) {
		t.Error("the same seed gave two models")
	}
	if bytes.Equal(model, tinyModel(2, rambles)) {
		t.Error("two seeds gave the same model")
	}
	if bytes.Equal(model, tinyModel(1, silent)) {
		t.Error("two tempers gave the same model")
	}
}
