package table

import "github.com/lockd/lockd/store/internal/format"

// page is a leaf of any table, as it was read.
type page interface {
	// verify adds the rows to what was found, or returns an error that says what is wrong with one.
	verify(found *format.Tally) error
}

// pagesAtOnce is how many pages are handed over at a time.
const pagesAtOnce = 32

// verifying is the rows of a file while it is read. Where there are many, a goroutine verifies
// them while the next are read: one takes about as long as the other.
type verifying struct {
	next   []page      // not handed over yet
	handed chan []page // nil: there is no goroutine
	done   chan struct{}
	found  format.Tally
	err    error // of the first row that is wrong
}

func (v *verifying) add(p page) {
	v.next = append(v.next, p)
	if len(v.next) < pagesAtOnce {
		return
	}
	if v.handed == nil {
		v.handed, v.done = make(chan []page, 16), make(chan struct{})
		go v.run()
	}
	v.handed <- v.next
	v.next = make([]page, 0, pagesAtOnce)
}

func (v *verifying) run() {
	defer close(v.done)
	for pages := range v.handed {
		v.verify(pages)
	}
}

func (v *verifying) verify(pages []page) {
	for _, p := range pages {
		if v.err == nil {
			v.err = p.verify(&v.found)
		}
	}
}

// end returns when all rows are verified.
func (v *verifying) end() error {
	v.stop()
	v.verify(v.next)
	v.next = nil
	return v.err
}

// stop ends the goroutine, if there is one.
func (v *verifying) stop() {
	if v.handed != nil {
		close(v.handed)
		<-v.done
		v.handed = nil
	}
}
