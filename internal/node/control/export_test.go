package control

// Expect makes a server that runs already take the requests of another user.
func (s *Server) Expect(user uint32) { s.options.User = user }
