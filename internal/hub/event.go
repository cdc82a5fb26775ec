package hub

// Event says that something happened to a name in a space. Events of one transaction share its
// Index, which is above 0. The hub never reads the Body.
type Event[T any] struct {
	Index uint64
	Space byte
	Size  uint32 // bytes that the Body keeps from being freed, as far as they count for [MaxBytes]
	Name  string
	Body  T
}
