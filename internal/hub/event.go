package hub

// Event says that something happened to a name in a space. Events of one transaction share its
// Index, which is above 0. The hub never reads the Body.
type Event[T any] struct {
	Index uint64
	Space byte
	Name  string
	Body  T
}
