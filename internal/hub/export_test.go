package hub

// Index returns the newest index of which everything in scope has been read.
func (c Cursor) Index() uint64 { return c.index }

// Index returns the newest index that was published, with events or without.
func (h *Hub[T]) Index() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.index
}
