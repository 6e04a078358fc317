package executor

import "sync"

// mailbox is an unbounded queue with many senders and one receiver. Senders
// never block: flushers and handlers must not wait for a run's owner.
type mailbox[T any] struct {
	mu     sync.Mutex
	items  []T
	spare  []T
	closed bool
	// ready holds a token while items may be non-empty.
	ready chan struct{}
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{ready: make(chan struct{}, 1)}
}

// put returns false if nobody will take the item any more.
func (m *mailbox[T]) put(item T) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.items = append(m.items, item)
	select {
	case m.ready <- struct{}{}:
	default:
	}
	return true
}

// close refuses all further items and returns those that were not taken.
func (m *mailbox[T]) close() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return m.items
}

// take returns all that arrived, in order. The slice is valid until the next take.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	clear(m.spare)
	m.items, m.spare = m.spare[:0], items
	return items
}
