"""Laws fitted to the elements of a matrix by maximum likelihood."""

from rmtbase.statistics._fits._logistic import LogisticFit, fit_logistic
from rmtbase.statistics._fits._normal import NormalFit, fit_normal
from rmtbase.statistics._fits._student_t import StudentTFit, fit_student_t

__all__ = ["LogisticFit", "NormalFit", "StudentTFit", "fit_logistic", "fit_normal", "fit_student_t"]
