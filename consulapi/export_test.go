package consulapi

// Statuses returns the errors that the table has, with the status of each.
func Statuses() map[error]int {
	codes := make(map[error]int)
	for _, row := range statuses() {
		codes[row.err] = row.code
	}
	return codes
}
