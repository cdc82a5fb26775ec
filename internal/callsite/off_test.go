//go:build !lockddebug

package callsite_test

import (
	"testing"
	"unsafe"

	"github.com/lockd/lockd/internal/callsite"
)

// Ensure that without the tag a site takes no memory.
func TestSite_TakesNoMemory(t *testing.T) {
	site := callsite.Here()
	if size := unsafe.Sizeof(site); size != 0 || site.Callers() != nil {
		t.Errorf("got %d bytes, callers %v", size, site.Callers())
	}
}
