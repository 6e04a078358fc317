package throttle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/pgexec/runtime/pgexec/graph"
)

// maxKey bounds a key in bytes; of a longer one its hash is used.
const maxKey = 200

// Key returns the key of a node's input: the string that the pointer leads to,
// or the JSON of any other value. It is empty where the pointer leads nowhere.
func Key(input []byte, pointer string) string {
	raw := graph.At(input, pointer)
	var key string
	if json.Unmarshal(raw, &key) != nil {
		key = string(raw)
	}
	key = strings.ToValidUTF8(strings.ReplaceAll(key, "\x00", "\uFFFD"), "\uFFFD")
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(key))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return key
}
