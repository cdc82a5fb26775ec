// Package browsertest has the tests of package lockdui that need a browser. They run in a headless
// Chromium, and are skipped where there is none.
//
// With -images they write the screenshots of the documents:
//
//	go test -run Images -images ../../doc/images
package browsertest
