package agent

import (
	"container/list"
	"sync"

	"github.com/pgexec/runtime/pgexec"
	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// maxRemembered bounds, in bytes, the results that a replica remembers.
const maxRemembered = 64 << 20

// results remembers what models saw of calls that can give nothing else any more,
// so that a turn need not read every output of its run again, large ones from
// blobs. It saves time only: what is not there is read from the log.
type results struct {
	mu     sync.Mutex
	byCall map[callKey]*list.Element
	used   list.List // of *rememberedResult, the longest unused one first
	bytes  int
}

type callKey struct {
	run     pgexec.RunID
	turn, k int
}

type rememberedResult struct {
	key     callKey
	message llm.Message
	bytes   int
}

func newResults() *results { return &results{byCall: make(map[callKey]*list.Element)} }

func (r *results) get(key callKey) (llm.Message, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byCall[key]
	if e == nil {
		return llm.Message{}, false
	}
	r.used.MoveToBack(e)
	return e.Value.(*rememberedResult).message, true
}

func (r *results) put(key callKey, m llm.Message) {
	size := 100 // of what is around the parts
	for _, p := range m.Parts {
		size += len(p.Text)
		if p.Image != nil {
			size += len(p.Image.Data)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byCall[key] != nil || size > maxRemembered {
		return
	}
	for r.bytes+size > maxRemembered {
		oldest := r.used.Remove(r.used.Front()).(*rememberedResult)
		delete(r.byCall, oldest.key)
		r.bytes -= oldest.bytes
	}
	r.byCall[key] = r.used.PushBack(&rememberedResult{key, m, size})
	r.bytes += size
}
