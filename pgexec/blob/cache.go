package blob

import (
	"container/list"
	"sync"
)

// cache keeps what was read or written last, by content: a run reads soon what it has just written.
type cache struct {
	most int

	mu     sync.Mutex
	size   int
	recent *list.List // of *cached, the last used in front
	byHash map[string]*list.Element
}

type cached struct {
	hash string
	data []byte
}

func newCache(most int) *cache {
	return &cache{most: most, recent: list.New(), byHash: make(map[string]*list.Element)}
}

func (c *cache) get(hash []byte) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byHash[string(hash)]
	if e == nil {
		return nil, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(*cached).data, true
}

// add keeps data, unless it would drive most of all else out.
func (c *cache) add(hash, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(data) > c.most/4 || c.byHash[string(hash)] != nil {
		return
	}
	c.byHash[string(hash)] = c.recent.PushFront(&cached{string(hash), data})
	for c.size += len(data); c.size > c.most; {
		last := c.recent.Back()
		old := c.recent.Remove(last).(*cached)
		delete(c.byHash, old.hash)
		c.size -= len(old.data)
	}
}
