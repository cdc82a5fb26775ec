package consulapi

// StatusOf returns the HTTP status for an error of the database.
func StatusOf(err error) int { return statusOf(err) }
